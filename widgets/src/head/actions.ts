// Commands for a run: pause, resume, cancel. Cancelling asks for confirmation in place.

import type { Connection } from "../shared/connection";
import { h, setText, type View } from "../shared/dom";
import { button } from "../shared/element";
import type { Model } from "../shared/model";
import { currentOf, keptText } from "./progress";

const LABELS = { pause: "Pause", resume: "Resume", cancel: "Cancel …" } as const;
type Command = keyof typeof LABELS;

/** Make the buttons, and the confirmation of "Cancel" that is shown below them. `say` shows the result of a command. */
export function actions(model: Model, connection: Pick<Connection, "control">, say: (text: string) => void): View & { question: HTMLElement } {
  const names = Object.keys(LABELS) as Command[];
  const buttons = new Map(names.map((name) => [name, button(LABELS[name], () => { press(name); }, { class: "db-button" })]));
  const questionText = h("span");
  const keepRunning = button("Keep running", () => { setFolded(true); }, { class: "db-button" });
  const confirm = (): void => {
    setFolded(true);
    send("cancel");
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.key === "Escape") setFolded(true);
  };
  const question = h(
    "div",
    { class: "db-sure", role: "group", "aria-label": "Cancel the run?", hidden: true, onkeydown: onKey },
    questionText, button("Cancel the run", confirm, { class: "db-button danger" }), keepRunning,
  );

  function press(name: Command): void {
    if (name !== "cancel") send(name);
    else setFolded(!question.hidden);
  }

  /** Hide or show the confirmation, and move the focus to it or back. */
  function setFolded(isFolded: boolean): void {
    setText(questionText, `Cancel the run? ${keptText(currentOf(model.header))}`);
    question.hidden = isFolded;
    buttons.get("cancel")?.setAttribute("aria-expanded", String(!isFolded));
    (isFolded ? buttons.get("cancel") : keepRunning)?.focus();
  }

  function send(command: Command): void {
    const pressed = buttons.get(command);
    pressed?.setAttribute("aria-busy", "true");
    void connection.control(command).then((ack) => {
      pressed?.removeAttribute("aria-busy");
      say(ack.accepted ? "" : ack.text);
    });
  }

  function show(): void {
    const { header, connected, failures } = model;
    // The card of a failure offers to resume as well, with the cost; a second button would compete with it.
    const hasFailureCard = failures.total > 0 && header?.ways.some(({ name }) => name !== "replay") === true;
    for (const [name, element] of buttons) {
      const isOffered = header?.commands.includes(name) === true && !(name === "resume" && hasFailureCard);
      // A hidden element loses the focus. Keep it inside the view.
      if (!isOffered && document.activeElement === element) element.closest<HTMLElement>("[tabindex]")?.focus();
      element.hidden = !isOffered;
      element.disabled = connected !== "connected";
    }
    if (buttons.get("cancel")?.hidden === true) question.hidden = true;
  }

  const undo = model.on((change) => {
    if (change === "header" || change === "connection" || change === "failures") show();
  });
  show();
  return { element: h("span", { class: "db-commands" }, ...buttons.values()), question, destroy: undo };
}
