// Plugin of JupyterLab and Notebook 7 that notifies people of new questions.

import { bringReaders } from "./bring";
import type { App, CellActions, LuminoWidgetClass, Notices, SettingRegistry, Settings, StatusBar, Tracker } from "./jupyterlab";
import { counter, markTabs } from "./marks";
import { notify } from "./notices";
import { Places } from "./places";
import { showQueued } from "./queued";
import { Waits } from "./waits";

export const PLUGIN = "divebook:questions";
const DESKTOP = "desktopNotifications";

/** What the page shares. */
export interface Parts {
  notices: Notices;
  actions: CellActions;
  widget: LuminoWidgetClass;
}

/** Tells of questions from now on; a status bar and settings are not on every page. */
export function tellOfQuestions(app: App, tracker: Tracker, parts: Parts, bar: StatusBar | null, registry: SettingRegistry | null): void {
  const waits = new Waits();
  const places = new Places(app, tracker);
  let settings: Settings | undefined;
  const isWanted = (): boolean => settings?.get(DESKTOP).composite === true;
  const ask = (): void => { if (isWanted() && Notification.permission === "default") void Notification.requestPermission(); };
  void registry?.load(PLUGIN).then((loaded) => {
    settings = loaded;
    loaded.changed.connect(ask);
    ask();
  });
  notify(waits, parts.notices, places, isWanted);
  markTabs(waits, places, tracker);
  bringReaders(waits, places, parts.actions);
  showQueued(waits, places, tracker, parts.actions);
  if (bar !== null) {
    const item = new parts.widget({ node: counter(waits, places) });
    const isActive = (): boolean => waits.open.length > 0;
    bar.registerStatusItem(PLUGIN, { item, align: "right", rank: 100, isActive });
    waits.changed.push(() => { item.setHidden(!isActive()); });
  }
  waits.follow(tracker);
}
