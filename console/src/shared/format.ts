/** Numbers, sizes and times in the language of the reader. */
import { currentLanguage } from './i18n.js';

export const number = (value: number, digits = 0): string =>
  new Intl.NumberFormat(currentLanguage(), { maximumFractionDigits: digits }).format(value);

/** 1.2K, 3.4M; in Japanese 1.2万. */
export const short = (value: number, digits = 1): string =>
  new Intl.NumberFormat(currentLanguage(), { notation: 'compact', maximumFractionDigits: digits }).format(
    value,
  );

export const percent = (part: number): string =>
  new Intl.NumberFormat(currentLanguage(), { style: 'percent', maximumFractionDigits: 1 }).format(part);

const UNITS = ['byte', 'kilobyte', 'megabyte', 'gigabyte', 'terabyte'] as const;

export function bytes(value: number, digits?: number): string {
  const step = Math.min(UNITS.length - 1, value < 1 ? 0 : Math.floor(Math.log10(value) / 3));
  return new Intl.NumberFormat(currentLanguage(), {
    style: 'unit',
    unit: UNITS[step]!,
    unitDisplay: 'short',
    maximumFractionDigits: digits ?? (step < 2 ? 0 : 1),
  }).format(value / 1_000 ** step);
}

export const dateTime = (milliseconds: number): string =>
  new Intl.DateTimeFormat(currentLanguage(), { dateStyle: 'medium', timeStyle: 'short' }).format(
    milliseconds,
  );

export const date = (milliseconds: number): string =>
  new Intl.DateTimeFormat(currentLanguage(), { dateStyle: 'medium' }).format(milliseconds);

const STEPS = [
  ['year', 31_557_600],
  ['month', 2_629_800],
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
] as const;

/** "3 minutes ago", "in 2 days". */
export function relative(milliseconds: number, now = Date.now()): string {
  const seconds = Math.round((milliseconds - now) / 1_000);
  const format = new Intl.RelativeTimeFormat(currentLanguage(), { numeric: 'auto' });
  for (const [unit, length] of STEPS)
    if (Math.abs(seconds) >= length) return format.format(Math.trunc(seconds / length), unit);
  return format.format(seconds, 'second');
}

export function duration(milliseconds: number): string {
  if (milliseconds < 1_000) return `${number(milliseconds, milliseconds < 10 ? 1 : 0)} ms`;
  const seconds = milliseconds / 1_000;
  for (const [unit, length] of STEPS)
    if (seconds >= length)
      return new Intl.NumberFormat(currentLanguage(), {
        style: 'unit',
        unit,
        unitDisplay: 'long',
        maximumFractionDigits: 1,
      }).format(seconds / length);
  return `${number(seconds, 1)} s`;
}
