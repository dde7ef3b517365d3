/** The example that people copy. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const PACKAGE = new URL("../../", import.meta.url);
const AROUND = `
declare const button: HTMLButtonElement;
declare const order: { readonly id: number };
declare function show(value: unknown): void;
declare function showError(text: string): void;
`;
const SETTINGS = {
  extends: "../../tsconfig.base.json",
  compilerOptions: { composite: false, noEmit: true, lib: ["ES2022", "DOM", "DOM.Iterable"], types: [] },
  files: ["example.ts"],
};

test("the example of the README compiles", () => {
  const example = /```ts\n([^]*?)```/.exec(readFileSync(new URL("README.md", PACKAGE), "utf8"))?.[1];
  assert.ok(example !== undefined && example.includes("createClient"));
  const folder = new URL("dist/readme/", PACKAGE);
  mkdirSync(folder, { recursive: true });
  writeFileSync(new URL("example.ts", folder), example + AROUND);
  writeFileSync(new URL("tsconfig.json", folder), JSON.stringify(SETTINGS));
  const compiler = fileURLToPath(new URL("node_modules/typescript/bin/tsc", PACKAGE));
  try {
    execFileSync(process.execPath, [compiler, "-p", fileURLToPath(folder)], { encoding: "utf8", stdio: "pipe" });
  } catch (error) {
    assert.fail((error as { stdout?: string }).stdout ?? String(error));
  }
});
