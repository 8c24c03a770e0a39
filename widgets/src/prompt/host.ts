// Drafts of all prompts on the page, and the notice shown when no kernel can receive an answer.

import type { ChannelState } from "../shared/channel";
import { kernelStopped } from "../shared/words";
import type { Draft, PromptHost } from "./types";

/** Drafts by question, shared by all present and future views of this page. */
export const drafts = new Map<string, Draft>();

/** Return a function that explains why no answer can be sent and how to continue; its result is empty while the kernel may answer. */
export function blockedReason(channelState: Pick<ChannelState, "connected">): PromptHost["blockedReason"] {
  return ({ interrupt_id: id }) => channelState.connected === "detached"
    ? kernelStopped(`answer here, or run %dive answer ${id} ANSWER.`)
    : "";
}
