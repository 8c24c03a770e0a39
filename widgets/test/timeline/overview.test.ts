// The whole run in one line: it is painted anew where what it shows has changed, its colours included.

import { expect, test, vi } from "vitest";
import { Model } from "../../src/shared/model";
import type { TimelineCanvas } from "../../src/timeline/canvas";
import { Overview } from "../../src/timeline/overview";
import { TimeMap } from "../../src/timeline/timemap";

test("once the theme has changed the line is painted at once, in other colours", () => {
  const scene = vi.fn(() => ({ now: 0 }));
  const timeline = { palette: { ink: "dark" }, map: new TimeMap(), viewport: { from: 0, to: 1, fitted: true }, scene };
  const overview = new Overview(new Model(() => 0), timeline as unknown as TimelineCanvas);
  overview.update();
  overview.update();
  expect(scene).toHaveBeenCalledTimes(1);
  timeline.palette = { ink: "light" };
  overview.update();
  overview.update();
  expect(scene).toHaveBeenCalledTimes(2);
  overview.destroy();
});
