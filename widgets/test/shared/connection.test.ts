import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { ToBrowser, ToKernel, Welcome } from "../../src/protocol";
import { Connection } from "../../src/shared/connection";
import { Model } from "../../src/shared/model";
import { delta, welcome } from "../blocks";

class Kernel {
  heard: ToKernel[] = [];
  #listeners = new Set<(message: ToBrowser) => void>();
  send = (message: ToKernel): void => {
    this.heard.push(message);
  };
  #lost = (): void => undefined;
  on = (name: string, receive: (message: ToBrowser) => void): void => {
    if (name === "msg:custom") this.#listeners.add(receive);
    else this.#lost = receive as () => void;
  };
  lose(): void {
    this.#lost();
  }
  off = (_: string, receive: (message: ToBrowser) => void): void => {
    this.#listeners.delete(receive);
  };
  say(message: ToBrowser): void {
    this.#listeners.forEach((listener) => { listener(message); });
  }
  types(): string[] {
    return this.heard.map((message) => message.type);
  }
  view(): string {
    const hello = this.heard.find((message) => message.type === "hello");
    return hello?.view ?? "";
  }
}

let kernel: Kernel;
let model: Model;
let connection: Connection;

beforeEach(() => {
  vi.useFakeTimers();
  kernel = new Kernel();
  model = new Model();
  connection = new Connection(kernel, model);
});

afterEach(() => {
  connection.close();
  vi.useRealTimers();
});

function greet(total = 1, id = 0): void {
  kernel.say(welcome([{ id, start: 0, end: 1 }], { view: kernel.view(), total }));
}

test("hello is said until the view is welcomed", () => {
  vi.advanceTimersByTime(1000);
  expect(kernel.types()).toEqual(["hello", "hello", "hello"]);
  greet();
  vi.advanceTimersByTime(5000);
  expect(kernel.types()).toHaveLength(3);
  expect(model.connected).toBe("connected");
});

test("a welcome for another view is not ours", () => {
  kernel.say(welcome([], { view: "somebody" }));
  expect(model.connected).toBe("connecting");
});

test("a kernel that does not answer for long is silent and not stopped, and may come back", () => {
  vi.advanceTimersByTime(20_000);
  expect(model.connected).toBe("silent");
  greet();
  expect(model.connected).toBe("connected");
});

test("a kernel that leaves heartbeats unanswered is silent until its next message", () => {
  greet();
  const acknowledge = (): void => { kernel.say({ type: "ack", id: kernel.view(), accepted: true, text: "" }); };
  for (let beat = 0; beat < 5; beat++) {
    vi.advanceTimersByTime(10_000);
    acknowledge();
  }
  expect(model.connected).toBe("connected");
  vi.advanceTimersByTime(30_000);
  expect(model.connected).toBe("silent");
  acknowledge();
  expect(model.connected).toBe("connected");
});

test("a kernel that has stopped stays stopped, however long it does not answer", () => {
  greet();
  kernel.lose();
  vi.advanceTimersByTime(60_000);
  expect(model.connected).toBe("detached");
});

test("a gap leads to another hello from the last known event", () => {
  greet();
  kernel.say(delta([], { after: 12, last: 14 }));
  expect(kernel.heard.at(-1)).toMatchObject({ type: "hello", since: 10 });
});

test("older spans are asked for page by page", () => {
  greet(7000, 6999);
  expect(kernel.heard.at(-1)).toMatchObject({ type: "range", first: 1999, stop: 6999 });
});

test("an answer is sent again until it is acknowledged, under the same id", async () => {
  greet();
  const settled = connection.answer("ask_1", true);
  vi.advanceTimersByTime(2000);
  const sent = kernel.heard.filter((message) => message.type === "answer");
  expect(sent).toHaveLength(3);
  expect(new Set(sent.map((message) => message.id)).size).toBe(1);
  kernel.say({ type: "ack", id: sent[0]?.id ?? "", accepted: false, text: "too late" });
  expect((await settled).text).toBe("too late");
  vi.advanceTimersByTime(5000);
  expect(kernel.heard.filter((message) => message.type === "answer")).toHaveLength(3);
});

test("it ends with a farewell, and nothing is said after it", () => {
  connection.close();
  vi.advanceTimersByTime(5000);
  expect(kernel.types()).toEqual(["hello", "bye"]);
});

test("a view whose kernel is gone says so at once, and comes back when one answers", () => {
  greet();
  kernel.lose();
  expect(model.connected).toBe("detached");
  greet();
  expect(model.connected).toBe("connected");
});

test("a comm that cannot send any more is detached, and throws nothing into the page", () => {
  greet();
  kernel.send = (): never => { throw new Error("Cannot send"); };
  connection.detail(0, () => undefined);
  expect(model.connected).toBe("detached");
  kernel.lose();
  expect(() => vi.advanceTimersByTime(1000)).not.toThrow();
});

test("a view that was welcomed says now and then that it is there", () => {
  greet();
  kernel.heard = [];
  vi.advanceTimersByTime(25_000);
  expect(kernel.types()).toEqual(["alive", "alive"]);
  expect(kernel.heard[0]).toMatchObject({ since: 10 });
});

test("a view that was forgotten meanwhile takes over what it has missed, but no second beginning", () => {
  greet();
  kernel.say(welcome([], { view: kernel.view(), since: 10, last: 15, total: 1 }));
  expect(model.last).toBe(15);
  kernel.say(welcome([], { view: kernel.view(), since: 0, last: 99 }));
  expect(model.last).toBe(15);
});

test("a delta of another feed leads to a hello that names the feed of the view, and changes nothing", () => {
  greet();
  kernel.say(delta([], { feed: "other", after: 10, last: 11 }));
  expect(kernel.heard.at(-1)).toMatchObject({ type: "hello", feed: "feed", since: 10 });
  expect(model.last).toBe(10);
});

test("a welcome of another feed, said without a hello, is passed on and leaves the model as it is", () => {
  connection.close();
  const others: Welcome[] = [];
  connection = new Connection(kernel, model, undefined, (other) => others.push(other));
  const view = kernel.heard.findLast((message) => message.type === "hello")?.view ?? "";
  kernel.say(welcome([{ id: 0, start: 0, end: 1 }], { view }));
  const other = welcome([], { view, feed: "other", last: 3 });
  kernel.say(other);
  expect(others).toEqual([other]);
  expect([model.feed, model.last]).toEqual(["feed", 10]);
});

test("a kernel that is gone is noticed although nobody does anything, and its return as well", () => {
  greet();
  const send = kernel.send;
  kernel.send = (): never => { throw new Error("Cannot send"); };
  vi.advanceTimersByTime(10_000);
  expect(model.connected).toBe("detached");
  kernel.send = send;
  kernel.heard = [];
  vi.advanceTimersByTime(10_000);
  expect(kernel.types()[0]).toBe("hello");
});

test("a part of the front end is asked for again with each welcome until it is here", async () => {
  greet();
  const script = connection.bundle("graph");
  kernel.lose();
  greet();
  expect(kernel.types().filter((type) => type === "bundle")).toHaveLength(2);
  kernel.say({ type: "bundle", view: kernel.view(), name: "graph", script: "export default 1" });
  expect(await script).toBe("export default 1");
  kernel.lose();
  greet();
  expect(kernel.types().filter((type) => type === "bundle")).toHaveLength(2);
});
