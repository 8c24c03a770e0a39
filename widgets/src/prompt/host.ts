// Page-wide data of prompts: drafts, and the notice if there is no kernel to answer to.

import type { ChannelState } from "../shared/channel";
import { kernelStopped } from "../shared/words";
import type { Draft, PromptHost } from "./types";

/** Of all views of this page, and of those that come after them. */
export const drafts = new Map<string, Draft>();

/** Returns what tells why nothing can be sent, and how to go on. */
export function away(follower: Pick<ChannelState, "connected">): PromptHost["away"] {
  return ({ interrupt_id: id }) => follower.connected === "detached"
    ? kernelStopped(`answer here, or %dive answer ${id} ANSWER`)
    : "";
}
