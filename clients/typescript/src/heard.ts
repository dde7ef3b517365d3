/** What an answer tells, apart from its content. */

import { parseHttpDate } from "./httpdate.js";
import { meaning } from "./taxonomy.js";
import type { Fate } from "./taxonomy.js";

/** What the server says of the key, by `Idempotency-Status`. */
export type KeyWord = "stored" | "replayed" | "freed" | "unknown";

export interface Heard {
  /** Zero for a redirect that the browser hides. */
  readonly status: number;
  readonly code?: string | undefined;
  /** The server's own word on whether repeating helps. */
  readonly retryable?: boolean | undefined;
  readonly key?: KeyWord | undefined;
  /** How long the server wants to be left alone, in milliseconds. */
  readonly retryAfter?: number | undefined;
  /** How long the key still stands, in milliseconds. */
  readonly expires?: number | "never" | undefined;
}

/** Of a longer body nothing is read: no problem needs that much to be told. */
export const PROBLEM_BYTES_MAX = 64 * 1024;

/** Reads an answer. `wall` is the local clock, for servers that do not tell theirs. */
export function hear(status: number, headers: Headers, body: Uint8Array | undefined, wall: number): Heard {
  const problem = isExplained(status, headers) && body !== undefined ? problemOf(body) : {};
  const date = firstLine(headers, "date");
  const clock = (date === null ? undefined : parseHttpDate(date, wall)) ?? wall;
  const retryable = problem["retryable"];
  return {
    status,
    code: codeOf(headers, problem["code"]),
    retryable:
      truth(firstLine(headers, "idempotency-retryable")) ??
      truth(firstLine(headers, "stripe-should-retry")) ??
      (typeof retryable === "boolean" ? retryable : undefined),
    key: keyWord(headers),
    retryAfter: longestWait(headers, clock, wall) ?? seconds(problem["retryAfter"]),
    expires: expires(firstLine(headers, "idempotency-expires"), clock, wall),
  };
}

/** Whether the body may explain a refusal. */
export function isExplained(status: number, headers: Headers): boolean {
  const type = firstLine(headers, "content-type")?.split(";")[0]?.trim().toLowerCase() ?? "";
  return status >= 300 && (type === "application/json" || type.endsWith("+json"));
}

/** How long to wait by a `Retry-After` value. Nothing: it is malformed, as if absent. */
export function retryAfter(value: string | null, clock: number, wall: number): number | undefined {
  if (value === null) return undefined;
  const text = value.trim();
  if (/^\d+$/.test(text)) return Number(text) * 1000;
  const at = parseHttpDate(text, wall);
  return at === undefined ? undefined : Math.max(0, at - clock);
}

/** Of several waits that are asked for the longest: none is undercut for the sake of another. */
function longestWait(headers: Headers, clock: number, wall: number): number | undefined {
  const lines = headers.get("retry-after")?.match(new RegExp(LINE, "g")) ?? [];
  const waits = lines.map((line) => retryAfter(line, clock, wall)).filter((wait) => wait !== undefined);
  return waits.length === 0 ? undefined : Math.max(...waits);
}

/** Whether the effect came about, as far as this answer alone can tell. */
export function fateOf(heard: Heard): Fate {
  const told = meaning(heard.code)?.fate;
  if (told !== undefined) return told;
  if (heard.key === "unknown") return "unknown";
  if (heard.key === "freed") return "did_not_happen";
  const { status } = heard;
  // 303 says where the result of what was done is found.
  if ((status >= 200 && status < 300) || status === 303) return "happened";
  // 503 is how a server says that it did not begin; 307 and 308 send the request elsewhere undone.
  if ((status >= 400 && status < 500) || status === 503 || status === 307 || status === 308) return "did_not_happen";
  return "unknown";
}

/** Whether this is the answer that the key has for good, so that no other attempt can come to another end. */
export function speaksForTheKey(heard: Heard): boolean {
  return heard.key === "stored" || heard.key === "replayed";
}

const REPEATED_STATUSES: ReadonlySet<number> = new Set([408, 429, 500, 502, 503, 504]);

/** Whether repeating can help: by the server's word, else by the code, else by the status. */
export function repeatHelps(heard: Heard): boolean {
  return heard.retryable ?? meaning(heard.code)?.repeat ?? REPEATED_STATUSES.has(heard.status);
}

const LINE = "(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,)?[^,]+";
const FIRST_LINE = new RegExp(`^(?:${LINE})?`);

/**
 * What a header says where it is sent once, and in its first line where it is sent twice: `Headers` joins lines with commas.
 * Of what is read here only dates have a comma of their own, behind the day of the week.
 */
function firstLine(headers: Headers, name: string): string | null {
  const lines = headers.get(name);
  return lines === null ? null : (FIRST_LINE.exec(lines)?.[0] ?? "");
}

/** A header whose code is known has the last word; what nobody knows may be anything, and leaves it to the body. */
function codeOf(headers: Headers, told: unknown): string | undefined {
  const named = (firstLine(headers, "error_code") ?? firstLine(headers, "error-code"))?.trim();
  return typeof told === "string" && meaning(named) === undefined ? told : named;
}

function keyWord(headers: Headers): KeyWord | undefined {
  const word = firstLine(headers, "idempotency-status")?.trim().toLowerCase();
  if (word === "stored" || word === "replayed" || word === "freed" || word === "unknown") return word;
  return truth(firstLine(headers, "idempotent-replayed")) === true ? "replayed" : undefined;
}

function expires(value: string | null, clock: number, wall: number): number | "never" | undefined {
  if (value === null) return undefined;
  if (value.trim().toLowerCase() === "never") return "never";
  const at = parseHttpDate(value, wall);
  return at === undefined ? undefined : Math.max(0, at - clock);
}

function truth(value: string | null): boolean | undefined {
  const word = value?.trim().toLowerCase();
  return word === "true" ? true : word === "false" ? false : undefined;
}

/** Seconds as JSON gives them, up to the next millisecond: never earlier than asked. */
function seconds(value: unknown): number | undefined {
  if (typeof value !== "number" || !(value >= 0)) return undefined;
  // By way of nanoseconds, because 16.001 * 1000 is more than 16001.
  return Number.isInteger(value) ? value * 1000 : Math.ceil(Math.round(value * 1e9) / 1e6);
}

function problemOf(body: Uint8Array): Readonly<Record<string, unknown>> {
  if (body.length > PROBLEM_BYTES_MAX) return {};
  try {
    // What is no JSON to the letter explains nothing, to no client.
    const text = new TextDecoder("utf-8", { fatal: true }).decode(body);
    const value: unknown = JSON.parse(text);
    return isRecord(value) ? value : {};
  } catch {
    return {};
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
