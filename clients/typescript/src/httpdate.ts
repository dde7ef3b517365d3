/** HTTP dates, in the three forms that RFC 9110 has servers send or clients accept. */

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const TIME = "(?<h>\\d\\d):(?<m>\\d\\d):(?<s>\\d\\d)";
const MONTH = `(?<month>${MONTHS.join("|")})`;
const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const SHORT = `(?<weekday>${DAYS.join("|")})`;
const LONG = "(?<weekday>Sun|Mon|Tues|Wednes|Thurs|Fri|Satur)day";
const FORMS = [
  new RegExp(`^${SHORT}, (?<day>\\d\\d) ${MONTH} (?<year>\\d{4}) ${TIME} GMT$`),
  new RegExp(`^${LONG}, (?<day>\\d\\d)-${MONTH}-(?<year>\\d\\d) ${TIME} GMT$`),
  new RegExp(`^${SHORT} ${MONTH} (?<day>[ \\d]\\d) ${TIME} (?<year>\\d{4})$`),
];

/** Milliseconds since 1970, or nothing if the text is no HTTP date. `wall` tells which century a short year is in. */
export function parseHttpDate(text: string, wall: number): number | undefined {
  for (const form of FORMS) {
    const found = form.exec(text.trim())?.groups;
    if (found === undefined) continue;
    const part = (name: string): number => Number(found[name]);
    const month = MONTHS.indexOf(found["month"] ?? "");
    let year = part("year");
    if (year < 100) {
      // The latest year with these digits that is not more than 50 years ahead.
      const latest = new Date(wall).getUTCFullYear() + 50;
      year = latest - ((latest - year) % 100);
    }
    const [day, hour, minute, second] = [part("day"), part("h"), part("m"), part("s")];
    const at = new Date(Date.UTC(year, month, day, hour, minute, second));
    const named = DAYS[at.getUTCDay()] === found["weekday"]?.slice(0, 3);
    // Date.UTC takes the 31st of February for a day in March.
    const exists = at.getUTCDate() === day && hour < 24 && minute < 60 && second < 60 && year >= 1970;
    return exists && named ? at.getTime() : undefined;
  }
  return undefined;
}
