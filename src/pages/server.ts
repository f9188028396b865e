/**
 * Adds the operators' console to the port: `/admin/` of the community that the host name selects, and
 * `/c/<slug>/admin/`. Every path below it is the same page, whose script shows what the path names.
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Communities } from '../communities/communities.js';
import { type Http, hostOf } from '../port/http.js';
import type { BuiltPages } from './built.js';

/** The pages on which a remote signer is reached: the sign-in with one, and the first set-up. */
const WITH_REMOTE = new Set(['remote', 'setup']);

export interface ConsoleOptions {
  readonly communities: Pick<Communities, 'find'>;
  readonly pages: BuiltPages;
}

export function addConsole({ app }: Http, { communities, pages }: ConsoleOptions): void {
  app.get('/assets/:file', (request, reply) => pages.sendAsset(request, reply));
  const page = (request: FastifyRequest, reply: FastifyReply) => {
    const { slug, '*': path } = request.params as { slug?: string; '*'?: string };
    if (communities.find(hostOf(request.headers), slug) === undefined)
      return reply.code(404).send({ error: 'no such community' });
    return pages.sendPage(reply, 'admin', { remoteSigners: WITH_REMOTE.has(path ?? '') });
  };
  for (const prefix of ['', '/c/:slug']) {
    app.get(`${prefix}/admin`, page);
    app.get(`${prefix}/admin/*`, page);
  }
}
