/**
 * Adds the paths of the members' pages to the port, of the community that the host name selects and below
 * `/c/<slug>`. Each is the same page, whose script shows what the path names. The page at `/` itself belongs
 * to the relay, which answers there with NIP-11 and the websocket too (relay/server.ts).
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Communities } from '../communities/communities.js';
import { escapeHtml } from '../events/rules/text.js';
import { type Http, hostOf } from '../port/http.js';
import type { BuiltPages, Reach } from './built.js';

/**
 * The first part of every path, and what a page loaded there may reach. Readers show pictures of others after
 * a click. `remote` is where remote signers are reached.
 */
const PATHS: Readonly<Record<string, Reach>> = {
  topics: { pictures: true },
  latest: { pictures: true },
  search: { pictures: true },
  me: {},
  join: {},
  remote: { remoteSigners: true },
};

export interface MembersOptions {
  readonly communities: Pick<Communities, 'find'>;
  readonly pages: BuiltPages;
}

export function addMembersPages({ app }: Http, { communities, pages }: MembersOptions): void {
  for (const [name, reach] of Object.entries(PATHS)) {
    const page = (request: FastifyRequest, reply: FastifyReply) => {
      const { slug } = request.params as { slug?: string };
      const community = communities.find(hostOf(request.headers), slug);
      if (community === undefined) return reply.code(404).send({ error: 'no such community' });
      const title = () => `<title>${escapeHtml(community.settings['relay.name'])}</title>`;
      return pages.sendPage(reply, 'members', reach, (html) =>
        html.replace(/<title>.*?<\/title>/, title).replace('<!-- about -->', NEEDS_SCRIPT),
      );
    };
    for (const prefix of ['', '/c/:slug']) {
      app.get(`${prefix}/${name}`, page);
      app.get(`${prefix}/${name}/*`, page);
    }
  }
}

const NEEDS_SCRIPT = 'This page needs JavaScript. Any Nostr client can read and post here too.';
