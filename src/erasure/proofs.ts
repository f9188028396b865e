/** Certificates as they lie in files: events, one a line, or one alone. Only what is signed and whole is believed. */
import { verifyEvent } from 'nostr-tools/pure';
import { certificateProblems } from '../core/certificate.js';
import { parseEvent } from '../core/event.js';
import { isRefusal } from '../core/reply.js';
import type { Proof } from './replay.js';

export interface ReadProofs {
  readonly proofs: readonly Proof[];
  /** In sentences, by the number of the line. */
  readonly problems: readonly string[];
}

export function readProofs(text: string): ReadProofs {
  const proofs: Proof[] = [];
  const problems: string[] = [];
  linesOf(text).forEach(({ line, number }) => {
    const read = readProof(line);
    if (typeof read === 'string') problems.push(`line ${number}: ${read}`);
    else proofs.push(read);
  });
  return { proofs, problems };
}

/** A file may also hold one event that was laid out for people. */
function linesOf(text: string): { line: string; number: number }[] {
  if (isJson(text)) return [{ line: text, number: 1 }];
  return text.split('\n').flatMap((line, at) => (line.trim() === '' ? [] : [{ line, number: at + 1 }]));
}

const isJson = (text: string) => {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
};

/** The certificate, or what is wrong with it. */
export function readProof(text: string): Proof | string {
  if (!isJson(text)) return 'it is no JSON, or was cut off';
  const event = parseEvent(JSON.parse(text));
  if (isRefusal(event)) return `it is no event: ${event.why}`;
  if (!verifyEvent({ ...event, tags: event.tags.map((tag) => [...tag]) }))
    return 'its id or signature is wrong';
  const { problems, certificate } = certificateProblems(event);
  if (certificate === undefined || problems.length > 0) return problems.join('; ');
  return { certificate, id: event.id, pubkey: event.pubkey, event: JSON.stringify(event) };
}
