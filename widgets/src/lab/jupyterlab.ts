// The little of JupyterLab that is used, as types: the packages themselves are the page's.

export interface Signal<S, A> {
  connect: (slot: (sender: S, args: A) => void) => boolean;
}

export interface CodeModel {
  type: string;
  mimeType: string;
  sharedModel: { getSource: () => string; changed: Signal<unknown, unknown> };
  mimeTypeChanged: Signal<unknown, unknown>;
}

export interface Panel {
  context: { ready: Promise<void> };
  content: {
    codeMimetype: string;
    widgets: readonly { model: CodeModel }[];
    model: { cells: { changed: Signal<unknown, unknown> } } | null;
    modelChanged: Signal<unknown, unknown>;
  };
}

export interface Tracker {
  forEach: (visit: (panel: Panel) => void) => void;
  widgetAdded: Signal<unknown, Panel>;
}

/** The languages of editors; each is loaded when first wanted. */
export interface Languages {
  getLanguage: (mimeType: string) => Promise<unknown>;
}

export interface MimeModel {
  data: Record<string, unknown>;
}

/** A widget of Lumino, as far as a renderer needs it. */
export interface LuminoWidget {
  readonly node: HTMLElement;
  dispose(): void;
}
export type LuminoWidgetClass = new () => LuminoWidget;
