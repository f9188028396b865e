/** Changes an input a little: its characters, or the JSON that it is. */
import type { Dice } from '../../src/demo/rules-dice.js';
import { oddJson, oddText } from './make/values.js';

/** `others`: inputs to take parts from. */
export function mutate(dice: Dice, input: string, others: readonly string[]): string {
  const inJson = dice.chance(0.5) ? mutateJson(dice, input) : undefined;
  return inJson ?? mutateText(dice, input, others);
}

function mutateText(dice: Dice, input: string, others: readonly string[]): string {
  let text = input;
  const changes = dice.between(1, 4);
  for (let change = 0; change < changes; change += 1) text = changeOnce(dice, text, others);
  return text;
}

function changeOnce(dice: Dice, text: string, others: readonly string[]): string {
  const at = dice.between(0, text.length);
  const end = Math.min(text.length, at + dice.between(1, 8));
  const [before, after] = [text.slice(0, at), text.slice(at)];
  switch (dice.between(0, 6)) {
    case 0:
      return before + text.slice(end);
    case 1:
      return before + oddText(dice, 6) + after;
    case 2:
      return before + String.fromCharCode(dice.between(0, 255)) + text.slice(at + 1);
    case 3:
      return before + text.slice(at, end).repeat(dice.between(2, 20)) + text.slice(end);
    case 4:
      return before;
    case 5: {
      const other = others.length === 0 ? text : dice.pick(others);
      return before + other.slice(dice.between(0, other.length));
    }
    default: {
      // A bit of one character.
      const code = text.charCodeAt(at) || 0;
      return before + String.fromCharCode(code ^ (1 << dice.between(0, 7))) + text.slice(at + 1);
    }
  }
}

/** Replaces, removes or doubles one value. Undefined if the input is not JSON. */
function mutateJson(dice: Dice, input: string): string | undefined {
  let root: unknown;
  try {
    root = JSON.parse(input);
  } catch {
    return undefined;
  }
  const places: [holder: Record<string, unknown>, key: string][] = [];
  const waiting: unknown[] = [root];
  for (const value of waiting) {
    if (typeof value !== 'object' || value === null) continue;
    for (const key of Object.keys(value)) {
      const holder = value as Record<string, unknown>;
      places.push([holder, key]);
      waiting.push(holder[key]);
    }
    if (places.length > 500) break;
  }
  if (places.length === 0) return JSON.stringify(oddJson(dice));
  const [holder, key] = dice.pick(places);
  const [from, other] = dice.pick(places);
  const kind = dice.between(0, 3);
  if (kind === 0) holder[key] = oddJson(dice);
  else if (kind === 1 && !Array.isArray(holder)) delete holder[key];
  else if (kind === 1) (holder as unknown as unknown[]).splice(Number(key), 1);
  // A copy, because a value inside itself is not JSON.
  else if (kind === 2) holder[key] = structuredClone(from[other]);
  else if (Array.isArray(holder)) holder.push(structuredClone(holder[Number(key)]));
  else holder[oddText(dice, 6)] = structuredClone(holder[key]);
  return JSON.stringify(root);
}
