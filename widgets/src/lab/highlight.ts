// YAML highlighting of cells that begin with %%dive. A cell without that line is Python.

import type { CodeModel, CodePanel, Languages, Tracker } from "./jupyterlab";
import { forEachNotebook } from "./notebooks";

const YAML = "text/x-yaml";
const MAGIC = /^\s*%%dive(?:\s|$)/;

/** Set the language of the cells in all notebooks, including notebooks that are opened later. */
export function highlight(tracker: Tracker<CodePanel>, languages: Languages): void {
  const watchedModels = new WeakSet<CodeModel>();
  const follow = (panel: CodePanel): void => {
    void panel.context.ready.then(() => {
      const watchNewCells = (): void => {
        for (const { model } of panel.content.widgets) {
          if (model.type === "code" && !watchedModels.has(model)) watch(model, panel, languages);
          watchedModels.add(model);
        }
      };
      const watchLater = (): void => { setTimeout(watchNewCells, 0); }; // the widgets of new cells are created after the model's signal
      panel.content.model?.cells.changed.connect(watchLater);
      panel.content.modelChanged.connect(watchLater);
      watchNewCells();
    });
  };
  forEachNotebook(tracker, follow);
}

/** Keep the language of a cell up to date with its first line. */
function watch(model: CodeModel, panel: CodePanel, languages: Languages): void {
  const update = (): void => {
    const isYaml = MAGIC.test(model.sharedModel.getSource().slice(0, 400));
    if (isYaml && model.mimeType !== YAML) model.mimeType = YAML;
    else if (!isYaml && model.mimeType === YAML) model.mimeType = panel.content.codeMimetype;
  };
  model.sharedModel.changed.connect(update);
  // An editor shows the language that was loaded last, not the one that was requested last. Therefore wait for each.
  const later = (): void => {
    const loaded = languages.getLanguage(model.mimeType).catch(() => null);
    void loaded.then(() => setTimeout(update, 0));
  };
  model.mimeTypeChanged.connect(later); // the kernel's language arrives late
  later();
}
