// Plugin of JupyterLab and Notebook 7 that notifies people of new questions.

import { scrollToNewQuestions } from "./autoscroll";
import type { App, CellActions, LuminoWidgetClass, Notices, SettingRegistry, Settings, StatusBar, Tracker } from "./jupyterlab";
import { statusItem, markTabs } from "./marks";
import { notify } from "./notices";
import { QuestionLocator } from "./locator";
import { showQueuedBars } from "./queued";
import { OpenQuestions } from "./openquestions";

export const PLUGIN = "divebook:questions";
const DESKTOP = "desktopNotifications";

/** Objects that JupyterLab provides to the plugin. */
export interface Parts {
  notices: Notices;
  actions: CellActions;
  widget: LuminoWidgetClass;
}

/** Activate the plugin. A status bar and settings are not available on every page. */
export function activateQuestions(app: App, tracker: Tracker, parts: Parts, bar: StatusBar | null, registry: SettingRegistry | null): void {
  const openQuestions = new OpenQuestions();
  const locator = new QuestionLocator(app, tracker);
  let settings: Settings | undefined;
  const isDesktopEnabled = (): boolean => settings?.get(DESKTOP).composite === true;
  const requestPermission = (): void => {
    if (isDesktopEnabled() && Notification.permission === "default") void Notification.requestPermission();
  };
  void registry?.load(PLUGIN).then((loaded) => {
    settings = loaded;
    loaded.changed.connect(requestPermission);
    requestPermission();
  });
  notify(openQuestions, parts.notices, locator, isDesktopEnabled);
  markTabs(openQuestions, locator, tracker);
  scrollToNewQuestions(openQuestions, locator, parts.actions);
  showQueuedBars(openQuestions, locator, tracker, parts.actions);
  if (bar !== null) {
    const item = new parts.widget({ node: statusItem(openQuestions, locator) });
    const isActive = (): boolean => openQuestions.open.length > 0;
    bar.registerStatusItem(PLUGIN, { item, align: "right", rank: 100, isActive });
    openQuestions.onChange.push(() => { item.setHidden(!isActive()); });
  }
  openQuestions.follow(tracker);
}
