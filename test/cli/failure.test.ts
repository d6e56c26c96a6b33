/** What the command line makes of the errors that no run of it can be made to meet. */
import { expect, it } from "vitest";
import { failureOf } from "../../src/cli/failure.js";
import { TooLargeError } from "../../src/index.js";

it("a message that is longer than the server takes is a failed call, and says why", () => {
  const error = new TooLargeError("echo", 2000, 1000);
  expect(failureOf(error, "localhost:1")).toEqual({
    exitCode: 1,
    message: error.message,
    error: { code: "TOO_LARGE", message: error.message },
  });
});
