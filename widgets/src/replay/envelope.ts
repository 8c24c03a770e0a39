// Envelope of a pipeline request at a position. It is an input at first, and later a part of a variable.

import type { StateView } from "../protocol";
import { valueText } from "../shared/values";

const HOLDER = "pipeline"; // the variable of a pipeline that holds its envelope
type Values = Record<string, unknown>;

/**
 * Return the envelope in a state, and the envelope in the state before it (undefined without such a state). Fields that
 * are empty in both are left out. If a state contains no envelope, the result for it is an empty object.
 */
export function envelopes(before: StateView | null, state: StateView): { was: Values | undefined; now: Values } {
  const was = before === null ? undefined : envelopeOf(before);
  const now = envelopeOf(state);
  const names = Object.keys({ ...was, ...now }).filter((name) => !isEmpty(now[name]) || !isEmpty(was?.[name]));
  const select = (values: Values): Values => Object.fromEntries(names.filter((name) => name in values).map((name) => [name, values[name]]));
  return { was: was === undefined ? undefined : select(was), now: select(now) };
}

/** Return the variables without the envelope, which is shown in a separate table. */
export function withoutEnvelope(variables: Values): Values {
  const holder = variables[HOLDER];
  if (!isEnvelope((holder as Values | undefined)?.["envelope"])) return variables;
  const others = Object.entries(holder as Values).filter(([name]) => name !== "envelope");
  return { ...variables, [HOLDER]: Object.fromEntries(others) };
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
