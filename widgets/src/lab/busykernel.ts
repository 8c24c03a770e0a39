// Faster connection to a kernel that runs a cell.
//
// A page that connects to a kernel asks it on the shell channel to describe itself, and holds all messages back until the
// answer, but at most for 3 seconds. A kernel whose cell waits for a person does not answer there, so that each reload would
// show the question 3 seconds late (measured with JupyterLab 4.5 and 4.6: 3.2 s, and 0.5 s with this module). It does answer on
// the control channel. Messages are then sent at once.

import { askKernel, forEachKernel } from "./comms";
import type { Kernel, Tracker } from "./jupyterlab";

const SHELL_TIMEOUT = 200; // milliseconds that the shell channel of an idle kernel may take longer than the control channel

/** Send the messages of new connections to busy kernels early, in all notebooks. */
export function connectEarly(tracker: Tracker): void {
  const known = new WeakSet<Kernel>();
  forEachKernel(tracker, (kernel) => {
    if (kernel === null || kernel === undefined || known.has(kernel)) return;
    known.add(kernel);
    const onStatus = (status: string): void => {
      if (status === "connected") sendEarly(kernel).catch(() => undefined); // the kernel has ended meanwhile
    };
    onStatus(kernel.connectionStatus);
    kernel.connectionStatusChanged.connect((_, status) => { onStatus(status); });
  });
}

/**
 * Send the messages that a connection holds back, if its kernel answers only on the control channel. JupyterLab never holds back
 * requests for a description. Without `_sendPending`, which is not public, messages are sent after 3 seconds as before.
 */
async function sendEarly(kernel: Kernel): Promise<void> {
  await askKernel(kernel, "kernel_info_request", {});
  const isBusy = await Promise.race([kernel.info.then(() => false), timeout()]);
  if (isBusy) kernel._sendPending?.();
}

async function timeout(): Promise<true> {
  return new Promise((resolve) => { setTimeout(() => { resolve(true); }, SHELL_TIMEOUT); });
}
