/** Sends a kept file: compressed if the client accepts that, or only "not modified". */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { KeptFile } from './kept-file.js';

export async function sendKept(
  { headers }: FastifyRequest,
  reply: FastifyReply,
  file: KeptFile,
  own: Readonly<Record<string, string>>,
): Promise<FastifyReply> {
  reply.headers({ ...own, etag: await file.etag(), vary: 'accept-encoding' });
  if (await file.isKnownTo(headers['if-none-match'])) return reply.code(304).send();
  const { encoding, bytes } = await file.encodedFor(headers['accept-encoding']);
  if (encoding !== undefined) reply.header('content-encoding', encoding);
  return reply.type(file.type).send(bytes);
}
