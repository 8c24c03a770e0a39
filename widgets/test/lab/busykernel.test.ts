// Connections to busy kernels: messages that are held back are sent as soon as the control channel answers.

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { connectEarly } from "../../src/lab/busykernel";
import type { Panel, Tracker } from "../../src/lab/jupyterlab";

beforeEach(() => { vi.useFakeTimers(); });
afterEach(() => { vi.useRealTimers(); });

/** Connect to a kernel whose shell channel answers or not; return the requests and how often messages were sent early. */
async function connected(info: Promise<unknown>, hasSendPending = true): Promise<{ requests: string[]; sent: number }> {
  const result = { requests: [] as string[], sent: 0 };
  const slots: ((sender: unknown, status: string) => void)[] = [];
  const kernel = {
    connectionStatus: "connecting",
    connectionStatusChanged: { connect: (slot: (sender: unknown, status: string) => void) => slots.push(slot) > 0 },
    sendControlMessage: (request: { header: { msg_type: string } }) => {
      result.requests.push(request.header.msg_type);
      return { done: Promise.resolve({ content: {} }) };
    },
    info,
    ...(hasSendPending ? { _sendPending: () => { result.sent++; } } : {}),
  };
  const sessionContext = { session: { kernel }, kernelChanged: { connect: () => true } };
  const panel = { sessionContext } as unknown as Panel;
  const tracker: Tracker = { forEach: (visit) => { visit(panel); }, widgetAdded: { connect: () => true } };
  connectEarly(tracker);
  expect(result.requests).toEqual([]);
  for (const slot of slots) slot(null, "connected");
  await vi.advanceTimersByTimeAsync(1000);
  return result;
}

test("the messages of a busy kernel are sent early", async () => {
  expect(await connected(new Promise(() => undefined))).toEqual({ requests: ["kernel_info_request"], sent: 1 });
});

test("an idle kernel answers itself, and nothing is sent early", async () => {
  expect((await connected(Promise.resolve({}))).sent).toBe(0);
});

test("a page without the method that is not public works as before", async () => {
  expect((await connected(new Promise(() => undefined), false)).requests).toEqual(["kernel_info_request"]);
});
