// Display names of events and paths.

const EVENT_NAMES: Record<string, string> = {
  execution_continue_as_new: "run continued as a new run",
  path_branched: "branches started",
  interrupt_raised: "question asked",
  interrupt_resolved: "question closed",
  state_mutated: "variables changed",
  time_accessed: "clock read",
  random_generated: "random number generated",
};
const PART_NAMES: Record<string, string> = { execution: "run", path: "branch", iteration: "item", operation: "call", interrupt: "question" };

/** Return the display name of an event type, such as "call completed" for `operation_completed`. */
export function eventName(type: string): string {
  return EVENT_NAMES[type] ?? type.split("_").map((part) => PART_NAMES[part] ?? part).join(" ");
}

/** Return the display name of a path, such as "branch 1.2" for `main-1-2`; an empty string for the first path. */
export function branchOf(path: string): string {
  const numbers = path.split("-").slice(1);
  return numbers.length === 0 ? "" : `${isRollback(path) ? "rollback" : "branch"} ${numbers.join(".")}`;
}

/** Return true if a path rolls back other paths. */
export function isRollback(path: string): boolean {
  return path.startsWith("rollback-");
}

/** Notice of a view whose kernel exists, as far as is known, and does not answer. */
export const KERNEL_SILENT = "The kernel does not answer, because it is busy with a cell or not connected. Your actions here take effect when it answers.";

/** Return a notice that the kernel stopped. A new kernel has no state, so the notebook must run again for the `action`. */
export function kernelStopped(action: string): string {
  return `The kernel stopped. Run the notebook up to this cell again to ${action}`;
}
