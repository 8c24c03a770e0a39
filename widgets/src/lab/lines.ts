// What a kernel tells the page outside of any cell: the comms of one target, which the kernel opens (divebook/widgets/
// line.py), or which a page that was loaded later asks it for.

import type { Ack } from "../protocol";
import { freshId, type KernelMessage, type Wire } from "../shared/channel";
import type { Comm, Kernel, Panel, Tracker } from "./jupyterlab";

const ENDS = new Set(["restarting", "autorestarting", "terminating", "dead"]);

/** Called for each line that a kernel has; returns what ends the conversation. */
export type Met<T extends KernelMessage> = (kernel: Kernel, wire: Wire<T>) => () => void;

/** Follows the kernels of all notebooks, those included that are opened later. */
export function followLines<T extends KernelMessage>(tracker: Tracker, target: string, met: Met<T>): void {
  const known = new WeakSet<Kernel>();
  const listen = (kernel: Kernel | null | undefined): void => {
    if (kernel === null || kernel === undefined || known.has(kernel)) return;
    known.add(kernel);
    follow(kernel, target, met);
  };
  const look = ({ sessionContext }: Panel): void => {
    listen(sessionContext.session?.kernel);
    sessionContext.kernelChanged.connect((_, { newValue }) => { listen(newValue); });
  };
  tracker.forEach(look);
  tracker.widgetAdded.connect((_, panel) => { look(panel); });
}

function follow<T extends KernelMessage>(kernel: Kernel, target: string, met: Met<T>): void {
  const open = new Map<string, () => void>();
  const take = (comm: Comm): void => {
    open.set(comm.commId, met(kernel, wireOf<T>(comm)));
    comm.onClose = () => { leave(comm.commId); };
  };
  const leave = (id: string): void => {
    const end = open.get(id);
    open.delete(id);
    end?.();
  };
  const leaveAll = (): void => { [...open.keys()].forEach(leave); };
  kernel.registerCommTarget(target, take);
  kernel.statusChanged.connect((_, status) => { if (ENDS.has(status)) leaveAll(); });
  kernel.disposed.connect(leaveAll);
  const found = commsOf(kernel, target).then((ids) => {
    for (const id of ids) if (!kernel.hasComm(id)) take(kernel.createComm(target, id));
  });
  found.catch(() => undefined); // the kernel went meanwhile: the next one is asked anew
}

/** Asks a kernel for its comms: on the control channel, since on the other it answers only once its cells have ended. */
async function commsOf(kernel: Kernel, target: string): Promise<string[]> {
  const header = { msg_id: freshId(), msg_type: "comm_info_request", session: kernel.clientId, username: kernel.username, version: "5.3", date: new Date().toISOString() };
  const request = { header, parent_header: {}, metadata: {}, content: { target_name: target }, buffers: [], channel: "control" };
  const { content } = await kernel.sendControlMessage(request, true).done;
  return Object.keys(content.comms ?? {});
}

/** Makes of a comm what channels speak through. */
function wireOf<T extends KernelMessage>(comm: Comm): Wire<T> {
  const receivers = new Set<(message: T | Ack) => void>();
  comm.onMsg = ({ content }) => { for (const receive of receivers) receive(content.data as T | Ack); };
  return {
    send: (message) => { comm.send(message); },
    on: (name, receive) => { if (name === "msg:custom") receivers.add(receive); },
    off: (_, receive) => { receivers.delete(receive); },
  };
}
