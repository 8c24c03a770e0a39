// Comms between a kernel and the page that do not belong to a cell. The kernel opens the comms of one target
// (divebook/widgets/views.py); a page that was loaded later asks the kernel for them.

import type { Ack } from "../protocol";
import { freshId, type KernelMessage, type Wire } from "../shared/channel";
import type { Comm, ControlReply, Kernel, Panel, Tracker } from "./jupyterlab";
import { forEachNotebook } from "./notebooks";

const END_STATUSES = new Set(["restarting", "autorestarting", "terminating", "dead"]);

/** Callback for each comm of a kernel. It returns a function that is called when the comm ends. */
export type OnComm<T extends KernelMessage> = (kernel: Kernel, wire: Wire<T>) => () => void;

/** Follow the comms of a target in the kernels of all notebooks, including notebooks that are opened later. */
export function followComms<T extends KernelMessage>(tracker: Tracker, target: string, onComm: OnComm<T>): void {
  const followed = new WeakSet<Kernel>();
  const followOnce = (kernel: Kernel | null | undefined): void => {
    if (kernel === null || kernel === undefined || followed.has(kernel)) return;
    followed.add(kernel);
    followKernel(kernel, target, onComm);
  };
  forEachKernel(tracker, followOnce);
}

/** Call a function for each kernel of the notebooks, including kernels that are started later. */
export function forEachKernel(tracker: Tracker, visit: (kernel: Kernel | null | undefined) => void): void {
  forEachNotebook(tracker, ({ sessionContext }: Panel) => {
    visit(sessionContext.session?.kernel);
    sessionContext.kernelChanged.connect((_, { newValue }) => { visit(newValue); });
  });
}

/** Follow the comms of one kernel until the kernel restarts or ends. */
function followKernel<T extends KernelMessage>(kernel: Kernel, target: string, onComm: OnComm<T>): void {
  const open = new Map<string, () => void>();
  const addComm = (comm: Comm): void => {
    open.set(comm.commId, onComm(kernel, wireOf<T>(comm)));
    comm.onClose = () => { removeComm(comm.commId); };
  };
  const removeComm = (id: string): void => {
    const end = open.get(id);
    open.delete(id);
    end?.();
  };
  const removeAll = (): void => { [...open.keys()].forEach(removeComm); };
  kernel.registerCommTarget(target, addComm);
  kernel.statusChanged.connect((_, status) => { if (END_STATUSES.has(status)) removeAll(); });
  kernel.disposed.connect(removeAll);
  const adoption = commsOf(kernel, target).then((ids) => {
    for (const id of ids) if (!kernel.hasComm(id)) addComm(kernel.createComm(target, id));
  });
  adoption.catch(() => undefined); // the kernel has ended meanwhile; the next one is followed anew
}

/** Return the ids of the comms that a kernel has open. */
async function commsOf(kernel: Kernel, target: string): Promise<string[]> {
  const { content } = await askKernel(kernel, "comm_info_request", { target_name: target });
  return Object.keys(content.comms ?? {});
}

/**
 * Send a request on the control channel and return its reply. The shell channel answers only after the running cells. The promise
 * resolves when the kernel has also reported on the iopub channel that it is done.
 */
export async function askKernel(kernel: Kernel, type: string, content: object): Promise<ControlReply> {
  const header = {
    msg_id: freshId(),
    msg_type: type,
    session: kernel.clientId,
    username: kernel.username,
    version: "5.3",
    date: new Date().toISOString(),
  };
  const request = { header, parent_header: {}, metadata: {}, content, buffers: [], channel: "control" };
  return kernel.sendControlMessage(request, true).done;
}

/** Adapt a comm to the interface of channels. */
function wireOf<T extends KernelMessage>(comm: Comm): Wire<T> {
  const receivers = new Set<(message: T | Ack) => void>();
  comm.onMsg = ({ content }) => { for (const receive of receivers) receive(content.data as T | Ack); };
  return {
    send: (message) => { comm.send(message); },
    on: (name, receive) => { if (name === "msg:custom") receivers.add(receive); },
    off: (_, receive) => { receivers.delete(receive); },
  };
}
