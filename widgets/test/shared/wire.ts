// A page and the wire to its kernel, as a widget gets them: what the kernel says, what it hears, and whether it is gone.

export interface Wire<Said, Heard> {
  page: HTMLElement;
  heard: Heard[];
  isGone: boolean;
  say: (message: Said) => void;
  /** What `render` of a widget takes. */
  given: { model: unknown; el: HTMLElement };
}

export function wired<Said, Heard>(): Wire<Said, Heard> {
  const page = document.createElement("div");
  document.body.replaceChildren(page);
  const listeners = new Set<(message: Said) => void>();
  const model = {
    send: (message: Heard) => {
      if (wire.isGone) throw new Error("Cannot send");
      wire.heard.push(message);
    },
    on: (name: string, listener: (message: Said) => void) => name === "msg:custom" && listeners.add(listener),
    off: (_: string, listener: (message: Said) => void) => listeners.delete(listener),
  };
  const say = (message: Said) => { listeners.forEach((listener) => { listener(message); }); };
  const wire: Wire<Said, Heard> = { page, heard: [], isGone: false, say, given: { model, el: page } };
  return wire;
}
