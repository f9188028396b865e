/**
 * The places of a lexeme in a post as a row of bits, so that a phrase takes the same small time for each of
 * its lexemes, however often they occur: a post of one word 250 times and a phrase of it 126 times would
 * otherwise need 30,000 comparisons of places, for each open search. Pure.
 */
import { PAIRS_FROM, placeOf, WEIGHTS, WORD_PLACES_MAX, type Words, weightOf } from './rules-words.js';

/** Words and pairs have places of their own (rules-words.ts). */
export type PlaceList = 'words' | 'pairs';
export type Places = Uint32Array;

const BITS = 32;
/** Both lists have as many places; a gap between two texts takes one more. */
const ROW_LENGTH = Math.ceil((WORD_PLACES_MAX + 64) / BITS);
const NOWHERE: Places = new Uint32Array(ROW_LENGTH);

const known = new WeakMap<Words, Record<PlaceList, Map<string, Places>>>();

/** Computed once for all searches. */
export function placesOf(words: Words, lexeme: string, list: PlaceList): Places {
  let lists = known.get(words);
  if (lists === undefined) {
    lists = { words: new Map(), pairs: new Map() };
    known.set(words, lists);
  }
  let places = lists[list].get(lexeme);
  if (places === undefined) {
    places = readPlaces(words.get(lexeme) ?? [], list);
    lists[list].set(lexeme, places);
  }
  return places;
}

function readPlaces(entries: readonly number[], list: PlaceList): Places {
  let places = NOWHERE;
  for (const entry of entries) {
    if ((weightOf(entry) === WEIGHTS.D) !== (list === 'pairs')) continue;
    const place = placeOf(entry) - (list === 'pairs' ? PAIRS_FROM : 0);
    // What stands aside has no neighbours.
    if (place >= ROW_LENGTH * BITS) continue;
    if (places === NOWHERE) places = new Uint32Array(ROW_LENGTH);
    places[Math.floor(place / BITS)]! |= 1 << (place % BITS);
  }
  return places;
}

/** Whether each list has a place right after one of the list before it. */
export function follow([first, ...others]: readonly Places[]): boolean {
  if (first === undefined) return false;
  const left = first.slice();
  for (const places of others) {
    let carried = 0;
    let found = 0;
    for (let at = 0; at < ROW_LENGTH; at += 1) {
      const row = left[at]!;
      left[at] = ((row << 1) | carried) & places[at]!;
      carried = row >>> (BITS - 1);
      found |= left[at]!;
    }
    if (found === 0) return false;
  }
  return left.some((row) => row !== 0);
}
