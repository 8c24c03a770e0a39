// Words for people for names in the log.

const WHOLE: Record<string, string> = {
  execution_continue_as_new: "run goes on as a new one",
  path_branched: "branches began",
  interrupt_raised: "question asked",
  interrupt_resolved: "question closed",
  state_mutated: "variables changed",
  time_accessed: "time read",
  random_generated: "chance read",
};
const PARTS: Record<string, string> = { execution: "run", path: "branch", iteration: "item", operation: "call", interrupt: "question" };

/** Returns the type of an event in words: of `operation_completed` "call completed". */
export function eventName(type: string): string {
  return WHOLE[type] ?? type.split("_").map((part) => PARTS[part] ?? part).join(" ");
}

/** Returns the name of a path: of `main-1-2` "branch 1.2", nothing of the one with which every run begins. */
export function branchOf(path: string): string {
  const numbers = path.split("-").slice(1);
  return numbers.length === 0 ? "" : `${isRollback(path) ? "rollback" : "branch"} ${numbers.join(".")}`;
}

/** Says whether what is done on a path undoes what was done on others. */
export function isRollback(path: string): boolean {
  return path.startsWith("rollback-");
}

/** Says that there is no kernel to answer, and what a new one needs before its cell can do `what`: a new one knows nothing of it. */
export function kernelStopped(what: string): string {
  return `The kernel stopped. Run the notebook up to this cell again to ${what}`;
}
