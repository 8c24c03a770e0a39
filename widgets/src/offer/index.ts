// Widget with a choice that a person must make before a cell continues: the situation, and a button for each action.

import type { RenderProps } from "@anywidget/types";
import type { Offer } from "../protocol";
import { Channel, type ChannelState, type Wire } from "../shared/channel";
import { h, setText } from "../shared/dom";
import { button } from "../shared/element";
import { containKeys } from "../shared/keys";
import type { ConnectionStatus } from "../shared/model";
import { onThemeChange } from "../shared/theme";
import { KERNEL_SILENT, kernelStopped } from "../shared/words";
import "./offer.css";

const DISCONNECTED_NOTICE = kernelStopped("choose here.");

/** State of the connection to the kernel. */
class ConnectionState implements ChannelState {
  readonly last = 0;
  readonly feed = "";
  connected: ConnectionStatus = "connecting";

  constructor(private readonly onChange: () => void) {}

  setConnected(connected: ConnectionStatus): void {
    this.connected = connected;
    this.onChange();
  }
}

/** Channel that receives the offer and sends the choice. */
class OfferChannel extends Channel<Offer> {
  constructor(wire: Wire<Offer>, connection: ConnectionState, private readonly onOffer: (offer: Offer) => void) {
    super(wire, connection);
  }

  /** Receive the offer, the answer to the greeting. Repeated offers are ignored. */
  protected override receive(offer: Offer): void {
    if (offer.view !== this.view || !this.isInHandshake) return;
    this.endHandshake();
    this.onOffer(offer);
  }
}

/** Render the offer. The returned function removes it. */
function render({ model: wire, el }: RenderProps): () => void {
  const text = h("p", { class: "question" });
  const buttonList = h("div", { class: "ways" });
  const status = h("p", { class: "status", role: "status" });
  const root = h("section", { class: "divebook divebook-offer", "aria-label": "The code has changed" }, text, buttonList, status);
  let isChosen = false; // true while the answer is sent and after it was accepted
  let notice = "";
  const connection = new ConnectionState(show);
  const channel = new OfferChannel(wire, connection, showOffer);

  function showOffer({ id, text: question, choices }: Offer): void {
    setText(text, question);
    buttonList.replaceChildren(...choices.map((choice, place) => {
      const send = (): void => { choose(id, choice.name, choice.label); };
      const choiceButton = button(choice.label, send, { class: place === 0 ? "primary" : null });
      return h("div", { class: "row" }, choiceButton, h("span", { class: "told" }, choice.description));
    }));
    show();
  }

  /** Send the choice, once. If the kernel refuses it, show the reason and enable the buttons again. */
  function choose(id: string, name: string, label: string): void {
    if (isChosen) return;
    isChosen = true;
    notice = `${label} …`;
    show();
    void channel.answer(id, name).then((ack) => {
      isChosen = ack.accepted;
      if (!ack.accepted) notice = ack.text;
      show();
    });
  }

  function show(): void {
    const canChoose = !isChosen && connection.connected === "connected";
    for (const choiceButton of buttonList.querySelectorAll("button")) choiceButton.disabled = !canChoose;
    const connectionText = { connecting: "", connected: "", silent: KERNEL_SILENT, detached: DISCONNECTED_NOTICE }[connection.connected];
    setText(status, connectionText || notice);
  }

  containKeys(root);
  el.append(root);
  const stopThemeUpdates = onThemeChange(root);
  return () => {
    stopThemeUpdates();
    channel.close();
    root.remove();
  };
}

export default { render };
