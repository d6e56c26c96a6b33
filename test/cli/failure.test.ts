/** How the command line reports errors that no test can provoke by running it. */
import { expect, it } from "vitest";
import { failureOf } from "../../src/cli/failure.js";
import { TooLargeError } from "../../src/index.js";

it("reports a message longer than the server's limit as a failed call, with the reason", () => {
  const error = new TooLargeError("echo", 2000, 1000);
  expect(failureOf(error, "localhost:1")).toEqual({
    exitCode: 1,
    message: error.message,
    error: { code: "TOO_LARGE", message: error.message },
  });
});
