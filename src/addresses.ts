/** By which addresses clients know a community: as configured, never as a client's header says. */
import type { Community } from './communities.js';
import { DEFAULT_SLUG } from './store/communities.js';

/** Websocket addresses; `bases` are those of the node itself. */
export function addressesOf({ slug, host, settings }: Community, bases: readonly string[]): string[] {
  const own = bases.map((base) => base.replace(/^http/, 'ws').replace(/\/$/, ''));
  if (slug === DEFAULT_SLUG) return [...settings['relay.urls'], ...own];
  const named = own.map((base) => `${base}/c/${slug}`);
  const hosted = host === undefined ? [] : own.map((base) => `${base.split('://', 1)[0]}://${host}`);
  return [...settings['relay.urls'], ...named, ...hosted];
}

/** Where a node answers: at its public address, or, while it has none, where it listens. */
export function basesOf(publicUrl: string | undefined, host: string, port: number): string[] {
  if (publicUrl !== undefined) return [publicUrl];
  const hosts = new Set(['127.0.0.1', 'localhost', '[::1]', host.includes(':') ? `[${host}]` : host]);
  return [...hosts].map((name) => `ws://${name}:${port}`);
}
