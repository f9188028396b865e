/** What a peer says about itself (NIP-11), as far as a sync needs it. Without an answer nothing is known. */
import { request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { z } from 'zod';
import { lookupFor } from './address.js';

const BYTES_MAX = 262_144;
const ANSWER_MS = 10_000;

const schema = z.object({
  supported_nips: z.array(z.number()).optional().catch(undefined),
  limitation: z
    .object({ max_limit: z.number().int().min(1).optional().catch(undefined) })
    .optional()
    .catch(undefined),
});

export interface PeerInformation {
  /** Undefined where the peer does not say. */
  readonly hasNegentropy: boolean | undefined;
  readonly limitMax: number | undefined;
}

interface InformationOptions {
  readonly allowsPrivate: boolean;
  readonly signal: AbortSignal;
  readonly answerMs: number;
}

const UNKNOWN: PeerInformation = { hasNegentropy: undefined, limitMax: undefined };
const NEGENTROPY_NIP = 77;

export async function readInformation(
  url: string,
  { allowsPrivate, signal, answerMs }: InformationOptions,
): Promise<PeerInformation> {
  const late = AbortSignal.timeout(Math.min(ANSWER_MS, answerMs));
  const text = await fetchText(url, allowsPrivate, AbortSignal.any([signal, late]));
  try {
    const { supported_nips: nips, limitation } = schema.parse(JSON.parse(text ?? ''));
    return { hasNegentropy: nips?.includes(NEGENTROPY_NIP), limitMax: limitation?.max_limit };
  } catch {
    return UNKNOWN;
  }
}

/** Undefined for anything but a whole answer of a usual size in time. */
function fetchText(url: string, allowsPrivate: boolean, signal: AbortSignal): Promise<string | undefined> {
  const address = new URL(url);
  const isSecure = address.protocol === 'wss:';
  address.protocol = isSecure ? 'https:' : 'http:';
  return new Promise((resolve) => {
    const lookup = lookupFor(url, allowsPrivate);
    const options = {
      headers: { accept: 'application/nostr+json' },
      signal,
      ...(lookup === undefined ? {} : { lookup }),
    };
    const asked = (isSecure ? requestHttps : requestHttp)(address, options, (response) => {
      const chunks: Buffer[] = [];
      let bytes = 0;
      response.on('data', (chunk: Buffer) => {
        bytes += chunk.length;
        if (bytes > BYTES_MAX) asked.destroy();
        else chunks.push(chunk);
      });
      response.on('error', () => resolve(undefined));
      response.on('close', () => resolve(undefined));
      response.on('end', () => resolve(Buffer.concat(chunks).toString()));
    });
    asked.on('error', () => resolve(undefined));
    asked.on('close', () => resolve(undefined));
    asked.end();
  });
}
