/**
 * Converts DATABASE_URL from any form that libpq accepts to one that the driver accepts: without a host, with
 * a folder of sockets as host, with parameters (`host`, `port`, `user`, `password`, `dbname`). Several hosts
 * are refused: a node has one database. Pure.
 */

const SHAPE = /^postgres(?:ql)?:\/\/(?:([^@/?#]*)@)?([^/?#]*)(?:\/([^?#]*))?(?:\?([^#]*))?$/i;
const EXAMPLES = 'postgres://user:password@host/db or postgres://user@/db?host=/folder/of/sockets';

export type DatabaseUrl = { readonly url: string } | { readonly problem: string };

/** `hostByDefault`: used if the URL has no host. */
export function databaseUrlOf(text: string, hostByDefault: string): DatabaseUrl {
  const [, user = '', at = '', path = '', query = ''] = SHAPE.exec(text) ?? [];
  if (!SHAPE.test(text)) return { problem: `must look like ${EXAMPLES}` };
  if (/%(?![0-9a-f]{2})/i.test(text)) return { problem: 'has a % that is not an escape; write %25 for it' };
  const given = new URLSearchParams(query);
  if ([at, given.get('host') ?? '', given.get('port') ?? ''].some((part) => part.includes(',')))
    return { problem: 'names several hosts or ports; give one' };
  const [, host = '', port = ''] = /^(\[[^\]]*\]|[^:]*)(?::(.*))?$/.exec(at) ?? [];
  if (!/^\d{0,5}$/.test(port) || !/^\d{0,5}$/.test(given.get('port') ?? ''))
    return { problem: 'has a port that is not a number' };
  const database = path === '' ? (given.get('dbname') ?? '') : '';
  // A URL that the driver can read stays as it is.
  if (database === '' && URL.canParse(text)) return { url: text };
  given.delete('dbname');
  const named = host === '' ? hostByDefault : host;
  // A folder cannot be written as the host of a URL.
  if (named.startsWith('/') && !given.has('host')) given.set('host', named);
  const shown = named.startsWith('/') ? 'localhost' : named;
  const parts = [
    'postgres://',
    user === '' ? '' : `${user}@`,
    shown,
    port === '' ? '' : `:${port}`,
    `/${path === '' ? encodeURIComponent(database) : path}`,
    given.size === 0 ? '' : `?${given}`,
  ];
  const url = parts.join('');
  return URL.canParse(url) ? { url } : { problem: `must look like ${EXAMPLES}` };
}

/** The path of its unix socket; undefined for TCP. */
export function socketOf(url: string): string | undefined {
  const { hostname, port, searchParams } = new URL(url);
  const host = searchParams.get('host') ?? decodeURIComponent(hostname);
  const at = searchParams.get('port') || port || '5432';
  return host.startsWith('/') ? `${host}/.s.PGSQL.${at}` : undefined;
}

/** For people: without the password, which may be in two places. */
export function withoutPassword(url: string): string {
  const parsed = new URL(url);
  parsed.password = '';
  parsed.searchParams.delete('password');
  return parsed.toString();
}
