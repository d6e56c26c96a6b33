/** Prints each failure in full as soon as it is known. The default reporter prints them at the end of the run. */
import type { Reporter, TestCase, TestModule, TestSuite, Vitest } from "vitest/node";

export default class Failures implements Reporter {
  #vitest!: Vitest;

  onInit(vitest: Vitest): void {
    this.#vitest = vitest;
  }

  onTestCaseResult(test: TestCase): void {
    this.#print(`${test.module.relativeModuleId} > ${test.fullName}`, test.result().errors);
  }

  /** Prints the errors of hooks. */
  onTestSuiteResult(suite: TestSuite): void {
    this.#print(`${suite.module.relativeModuleId} > ${suite.fullName}`, suite.errors());
  }

  /** Prints the errors outside of tests, such as a failed import. */
  onTestModuleEnd(module: TestModule): void {
    this.#print(module.relativeModuleId, module.errors());
  }

  #print(name: string, errors: readonly unknown[] | undefined): void {
    for (const error of errors ?? []) {
      this.#vitest.logger.error(`\nFAILED ${name}`);
      this.#vitest.logger.printError(error);
    }
  }
}
