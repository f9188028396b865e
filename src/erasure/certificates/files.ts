/**
 * Reads certificates from files: one event per line, or one alone. Only complete, signed ones are accepted.
 */
import { verifyEvent } from 'nostr-tools/pure';
import { type NostrEvent, parseEvent } from '../../events/rules/event.js';
import { isRefusal } from '../../events/rules/reply.js';
import type { Proof } from '../replay.js';
import { type Certificate, certificateProblems } from './rules.js';

export interface Document {
  /** Its line, where the file has one on each. */
  readonly line: number | undefined;
  readonly text: string;
}

/** One document, on however many lines, or one on each line. */
export function documentsOf(text: string): Document[] {
  if (isJson(text)) return [{ line: undefined, text }];
  return text.split('\n').flatMap((line, at) => (line.trim() === '' ? [] : [{ line: at + 1, text: line }]));
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

export interface ReadDocument {
  readonly event?: NostrEvent;
  readonly certificate?: Certificate | undefined;
  /** What is wrong with it alone, in sentences. */
  readonly problems: readonly string[];
}

export function readDocument(text: string): ReadDocument {
  if (!isJson(text)) return { problems: ['it is not JSON, or was cut off'] };
  const event = parseEvent(JSON.parse(text));
  if (isRefusal(event)) return { problems: [`it is no event: ${event.why}`] };
  const { problems, certificate } = certificateProblems(event);
  if (!verifyEvent({ ...event, tags: event.tags.map((tag) => [...tag]) }))
    problems.unshift('its id or its signature does not hold: it was changed');
  return { event, certificate, problems };
}

export interface ReadProofs {
  readonly proofs: readonly Proof[];
  /** In sentences, by the number of the line. */
  readonly problems: readonly string[];
}

export function readProofs(text: string): ReadProofs {
  const proofs: Proof[] = [];
  const problems: string[] = [];
  for (const { line, text: document } of documentsOf(text)) {
    const { event, certificate, problems: found } = readDocument(document);
    if (event === undefined || certificate === undefined || found.length > 0)
      problems.push(`line ${line ?? 1}: ${found.join('; ')}`);
    else proofs.push({ certificate, id: event.id, pubkey: event.pubkey, event: JSON.stringify(event) });
  }
  return { proofs, problems };
}
