// Widget with a choice that a person must make before a cell continues: the situation, and a button for each action.

import type { RenderProps } from "@anywidget/types";
import type { Offer } from "../protocol";
import { Channel, type ChannelState, type Wire } from "../shared/channel";
import { h, setText } from "../shared/dom";
import { button } from "../shared/element";
import { containKeys } from "../shared/keys";
import type { ConnectionStatus } from "../shared/model";
import { onThemeChange } from "../shared/theme";
import { kernelStopped } from "../shared/words";
import "./offer.css";

const GONE = kernelStopped("choose here.");

/** What is known of the kernel. */
class Standing implements ChannelState {
  readonly last = 0;
  connected: ConnectionStatus = "connecting";

  constructor(private readonly changed: () => void) {}

  setConnected(connected: ConnectionStatus): void {
    this.connected = connected;
    this.changed();
  }
}

/** Hears the offer, and says what is chosen. */
class OfferChannel extends Channel<Offer> {
  constructor(wire: Wire<Offer>, standing: Standing, private readonly told: (offer: Offer) => void) {
    super(wire, standing);
  }

  protected override receive(offer: Offer): void {
    if (offer.view !== this.view || !this.isInHandshake) return;
    this.endHandshake();
    this.told(offer);
  }
}

function render({ model: wire, el }: RenderProps): () => void {
  const text = h("p", { class: "question" });
  const ways = h("div", { class: "ways" });
  const status = h("p", { class: "status", role: "status" });
  const root = h("section", { class: "divebook divebook-offer", "aria-label": "The code has changed" }, text, ways, status);
  let [isChosen, said] = [false, ""];
  const standing = new Standing(show);
  const channel = new OfferChannel(wire, standing, begin);

  function begin({ id, text: told, choices }: Offer): void {
    setText(text, told);
    ways.replaceChildren(...choices.map((choice, place) => {
      const chosen = button(choice.label, () => { choose(id, choice.name, choice.label); }, { class: place === 0 ? "primary" : null });
      return h("div", { class: "row" }, chosen, h("span", { class: "told" }, choice.told));
    }));
    show();
  }

  function choose(id: string, name: string, label: string): void {
    if (isChosen) return;
    [isChosen, said] = [true, `${label} …`];
    show();
    void channel.answer(id, name).then((ack) => {
      [isChosen, said] = [ack.accepted, ack.accepted ? said : ack.text];
      show();
    });
  }

  function show(): void {
    const isGone = standing.connected === "detached";
    for (const one of ways.querySelectorAll("button")) one.disabled = isChosen || standing.connected !== "connected";
    setText(status, isGone ? GONE : said);
  }

  containKeys(root);
  el.append(root);
  const forget = onThemeChange(root);
  return () => {
    forget();
    channel.close();
    root.remove();
  };
}

export default { render };
