/** The certificate of an erasure over HTTP: the signed event as it is, or a page of it to print. */
import { Readable } from 'node:stream';
import type { Pool } from 'pg';
import { z } from 'zod';
import { Flow } from '../../api/contract.js';
import { type Denial, denial } from '../../api/rules-errors.js';
import type { NostrEvent } from '../../events/rules/event.js';
import { readCertificate } from './certificates.sql.js';
import { certificatePage } from './page.js';

const JSON_TYPE = 'application/json';
const HTML = 'text/html';

/** What its routes share. */
export const certificateAnswer = {
  produces: {
    [JSON_TYPE]: z.record(z.string(), z.unknown()).describe('A signed event of kind 8062'),
    [HTML]: z.string(),
  },
  response: z.custom<Flow>(),
} as const;

export async function sendCertificate(pool: Pool, erasureId: string, type: string): Promise<Flow | Denial> {
  const found = await readCertificate(pool, erasureId);
  if (found === undefined) return denial('NOT_READY');
  const { event } = found;
  const text = type === HTML ? certificatePage(JSON.parse(event) as NostrEvent) : event;
  // A certificate of an unknown version is still served as the event.
  return text === undefined ? denial('NOT_READY') : new Flow(Readable.from([text]));
}
