// Request of a pipeline at a position: its envelope, which is an input first and then a part of a variable.

import type { StateView } from "../protocol";
import { valueText } from "../shared/values";

const HOLDER = "pipeline"; // the variable of a pipeline that holds its envelope
type Values = Record<string, unknown>;

/** Returns the envelope of a state, without what is empty in both it and the state before; empty where there is none. */
export function envelopes(before: StateView | null, state: StateView): { was: Values | undefined; now: Values } {
  const [was, now] = [before === null ? undefined : envelopeOf(before), envelopeOf(state)];
  const telling = Object.keys({ ...was, ...now }).filter((name) => !isEmpty(now[name]) || !isEmpty(was?.[name]));
  const kept = (values: Values): Values => Object.fromEntries(telling.filter((name) => name in values).map((name) => [name, values[name]]));
  return { was: was === undefined ? undefined : kept(was), now: kept(now) };
}

/** Returns the variables without the envelope, which has a table of its own. */
export function besides(variables: Values): Values {
  const held = variables[HOLDER];
  if (!isEnvelope((held as Values | undefined)?.["envelope"])) return variables;
  return { ...variables, [HOLDER]: Object.fromEntries(Object.entries(held as Values).filter(([name]) => name !== "envelope")) };
}

function envelopeOf({ variables, inputs }: StateView): Values {
  return [(variables[HOLDER] as Values | null | undefined)?.["envelope"], inputs["envelope"]].find(isEnvelope) ?? {};
}

function isEnvelope(value: unknown): value is Values {
  return typeof value === "object" && value !== null && "envelope_id" in value;
}

function isEmpty(value: unknown): boolean {
  return value === undefined || ["null", "false", "0", '""', "", "{}", "[]"].includes(valueText(value, 8));
}
