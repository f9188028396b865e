/** The certificate of an erasure over HTTP: the signed event as it is, or a page of it to print. */
import { Readable } from 'node:stream';
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Denial, denial } from '../core/errors.js';
import type { NostrEvent } from '../core/event.js';
import { certificatePage } from '../erasure/certificate-page.js';
import { readCertificate } from '../store/certificates.js';
import { Flow } from './contract.js';

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
  // One that this program cannot read is still there for those who can.
  return text === undefined ? denial('NOT_READY') : new Flow(Readable.from([text]));
}
