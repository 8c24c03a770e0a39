import { expect, test } from "vitest";
import { makeForm } from "../../src/prompt/form";
import type { Schema } from "../../src/prompt/schema";
import schemas from "./pydantic.json";
import { buttonOf, type } from "./questions";

const ORDER = {
  customer: "Ada",
  notes: "",
  level: "high",
  express: true,
  gift: false,
  count: 3,
  weight: 1.5,
  price: "12.50",
  due: "2026-11-30",
  mail: "ada@example.org",
  site: "https://example.org/",
  token: "hush",
  tags: ["a", "b"],
  flags: ["a", "c"],
  size: [4, 5],
  address: { street: "Long Road 1", zip: "12345", country: "FR" },
  billing: { street: "Short Road 2", zip: "54321", country: "US" },
  pet: { kind: "dog", name: "Rex" },
  amount: "many",
  extra: { x: 1 },
  tree: { name: "root", children: [{ name: "leaf", children: [] }] },
  anything: [1, { a: null }],
};

function formOf(schema: Schema, value?: unknown, isRequired = true): ReturnType<typeof makeForm> {
  const form = makeForm(schema, value, isRequired);
  document.body.replaceChildren(form.element);
  return form;
}

function errors(): string[] {
  return [...document.querySelectorAll(".error")].map((one) => one.textContent).filter((text) => text !== "");
}

test("a value goes through the form of a pydantic model unchanged", () => {
  const form = formOf(schemas.Order, ORDER);
  expect(form.value()).toEqual(ORDER);
  expect(form.check()).toBe(true);
  expect(errors()).toEqual([]);
});

test("an empty form holds the defaults and says of each required field that it is missing", () => {
  const form = formOf(schemas.Order);
  expect(form.value()).toMatchObject({ notes: "", gift: false, count: 1, tags: ["new"], size: [1, 2], price: "9.95" });
  expect(form.value()).not.toHaveProperty("billing");
  expect(form.check()).toBe(false);
  expect(errors()).toEqual([
    "Customer needs an answer.",
    "Level needs an answer.",
    "Express needs an answer.",
    "Due needs an answer.",
    "Street needs an answer.",
    "Zip needs an answer.",
    "Amount needs an answer.",
  ]);
  expect(document.activeElement?.closest(".field")?.textContent).toContain("Customer");
});

test("a property is called by its own name, not by that of its class", () => {
  formOf(schemas.Order);
  expect(buttonOf(document.body, "Add Billing").type).toBe("button");
});

test("every input has a label or a name", () => {
  formOf(schemas.Order, ORDER);
  const unnamed = [...document.querySelectorAll("input, select, textarea")].filter((one) => {
    const byId = document.querySelector(`label[for="${one.id}"]`);
    return one.closest("label") === null && (one.id === "" || byId === null) && !one.hasAttribute("aria-label");
  });
  expect(unnamed).toEqual([]);
});

const WRONG: [string, Schema, unknown, string][] = [
  ["minimum", { type: "integer", title: "N", minimum: 3 }, 2, "N must be at least 3."],
  ["maximum", { type: "integer", title: "N", maximum: 3 }, 4, "N must be at most 3."],
  ["exclusive bounds", { type: "number", title: "N", exclusiveMinimum: 0 }, 0, "N must be more than 0."],
  ["a fraction", { type: "integer", title: "N" }, 1.5, "N must be an integer."],
  ["steps", { type: "number", title: "N", multipleOf: 0.1 }, 0.25, "N must be a multiple of 0.1."],
  ["too large", { type: "integer", title: "N" }, 1e17, "N is too large to be sent without rounding."],
  ["length", { type: "string", title: "T", minLength: 3 }, "ab", "T must have at least 3 characters."],
  ["pattern", { type: "string", title: "T", pattern: "^a+$" }, "b", "T must match the pattern ^a+$."],
  ["e-mail", { type: "string", title: "T", format: "email" }, "ada", "T must be an e-mail address."],
  ["address", { type: "string", title: "T", format: "uri" }, "example", "T must be an address such as https://example.org."],
  ["items", { type: "array", title: "L", items: { type: "string" }, minItems: 1, maxItems: 1 }, ["a", "b"], "L takes at most 1 entry."],
  ["twice", { type: "array", items: { type: "string" }, uniqueItems: true }, ["a", "a"], "The value must not contain the same entry twice."],
];

test.each(WRONG)("what breaks a rule is told where it is: %s", (_name, schema, value, message) => {
  const form = formOf(schema, value);
  expect(form.check()).toBe(false);
  expect(errors()).toEqual([message]);
});

test("0.3 is a multiple of 0.1", () => {
  expect(formOf({ type: "number", multipleOf: 0.1 }, 0.3).check()).toBe(true);
});

test("a pattern that only Python understands is left to the kernel", () => {
  expect(formOf({ type: "string", pattern: "(?P<a>x)" }, "y").check()).toBe(true);
});

test("what is not JSON is refused in place", () => {
  const form = formOf({ type: "object", title: "Arguments" }, { a: 1 });
  type(document.querySelector("textarea"), "{a: 1}");
  expect(form.check()).toBe(false);
  expect(errors()[0]).toMatch(/^Arguments is not valid JSON: /);
  type(document.querySelector("textarea"), '{"a": 2}');
  expect(form.check()).toBe(true);
  expect(form.value()).toEqual({ a: 2 });
  expect(errors()).toEqual([]);
});

test("JSON of the wrong kind says so", () => {
  const form = formOf({ type: "object", title: "Arguments" }, undefined);
  type(document.querySelector("textarea"), "[1]");
  expect(form.check()).toBe(false);
  expect(errors()).toEqual(["Arguments must be a JSON object."]);
});

test("nothing, null and an empty text are told apart", () => {
  const properties = { a: { anyOf: [{ type: "string" }, { type: "null" }] }, b: { anyOf: [{ type: "integer" }, { type: "null" }], default: 3 }, c: { type: "string", default: "x" } };
  const form = formOf({ type: "object", properties, required: ["a"] }, undefined);
  for (const input of document.querySelectorAll("input, textarea")) type(input, "");
  expect(form.value()).toEqual({ a: null, b: null, c: "" });
  expect(form.check()).toBe(true);
});

test("entries are added and removed", () => {
  const form = formOf({ type: "array", items: { type: "integer", title: "Port" } }, [1, 2]);
  buttonOf(document.body, "Add port").click();
  const inputs = document.querySelectorAll("input");
  expect(document.activeElement).toBe(inputs[2]);
  type(inputs[2] ?? null, "3");
  document.querySelector<HTMLButtonElement>("[aria-label='Remove port 1']")?.click();
  expect(form.value()).toEqual([2, 3]);
});

test("a recursive model is unfolded only as far as it is asked for", () => {
  const form = formOf(schemas.Tree, { name: "root" });
  expect(document.querySelectorAll("textarea")).toHaveLength(1);
  expect(form.value()).toEqual({ name: "root" });
  const endless: Schema = { $defs: { A: { type: "object", properties: { a: { $ref: "#/$defs/A" } }, required: ["a"] } }, $ref: "#/$defs/A" };
  expect(formOf(endless).element.querySelectorAll("fieldset").length).toBeLessThan(20);
});

test("schemas that make no sense still give a form", () => {
  const odd: Schema[] = [{}, { $ref: "#/nowhere" }, { $ref: "#" }, { type: "strange" }, { anyOf: [] }, { enum: [] }, { allOf: [{ type: "string" }] }, { type: ["string", "null"] }, { type: "null" }];
  for (const schema of odd) expect(() => formOf(schema).value()).not.toThrow();
});

test("the kind of a value is chosen among alternatives", () => {
  const form = formOf({ anyOf: [{ type: "integer" }, { type: "array", items: { type: "string" } }] }, 5);
  expect(form.value()).toBe(5);
  type(document.querySelector("select"), "1");
  expect(form.value()).toEqual([]);
});

test("constants with titles are choices", () => {
  const form = formOf({ oneOf: [{ const: 1, title: "One" }, { const: 2, title: "Two" }] }, undefined);
  expect([...document.querySelectorAll("label")].map((label) => label.textContent)).toEqual(["One", "Two"]);
  document.querySelectorAll("input")[1]?.click();
  expect(form.value()).toBe(2);
});

test("a moment keeps its instant and gets a distance from UTC", () => {
  const form = formOf({ type: "string", format: "date-time" }, "2026-11-30T12:00:00Z");
  expect(String(form.value())).toMatch(/^2026-\d\d-\d\dT\d\d:\d\d:00[+-]\d\d:\d\d$/);
  expect(new Date(String(form.value())).getTime()).toBe(Date.UTC(2026, 10, 30, 12));
});

test("texts of schemas are text", () => {
  formOf({ type: "object", properties: { "<b>x</b>": { type: "string", title: "<img src=x onerror=alert(1)>\u202e", description: "<script>" } } });
  expect(document.querySelector("img, script, b")).toBeNull();
  expect(document.querySelector("label")?.textContent).toContain("\\u202e");
});
