/**
 * DATABASE_URL in every form that libpq takes, as one that the driver takes: without a host, with a folder of
 * sockets as host, the parts as parameters (`host`, `port`, `user`, `password`, `dbname`). Several hosts are
 * refused: a node has one database.
 */

const SHAPE = /^postgres(?:ql)?:\/\/(?:([^@/?#]*)@)?([^/?#]*)(?:\/([^?#]*))?(?:\?([^#]*))?$/i;
const EXAMPLES = 'postgres://user:password@host/db or postgres://user@/db?host=/folder/of/sockets';

export type DatabaseUrl = { readonly url: string } | { readonly problem: string };

/** `hostByDefault`: where the URL names none. */
export function databaseUrlOf(text: string, hostByDefault: string): DatabaseUrl {
  const [, user = '', at = '', path = '', query = ''] = SHAPE.exec(text) ?? [];
  if (!SHAPE.test(text)) return { problem: `must look like ${EXAMPLES}` };
  if (/%(?![0-9a-f]{2})/i.test(text)) return { problem: 'has a % that is no escape; write %25 for it' };
  const given = new URLSearchParams(query);
  if ([at, given.get('host') ?? '', given.get('port') ?? ''].some((part) => part.includes(',')))
    return { problem: 'names several hosts or ports; give one' };
  const [, host = '', port = ''] = /^(\[[^\]]*\]|[^:]*)(?::(.*))?$/.exec(at) ?? [];
  if (!/^\d{0,5}$/.test(port) || !/^\d{0,5}$/.test(given.get('port') ?? ''))
    return { problem: 'has a port that is no number' };
  const database = path === '' ? (given.get('dbname') ?? '') : '';
  // What the driver reads by itself is left as it is.
  if (database === '' && URL.canParse(text)) return { url: text };
  given.delete('dbname');
  const named = host === '' ? hostByDefault : host;
  // A folder cannot stand between // and /.
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

/** For people: neither of the two places of a password. */
export function withoutPassword(url: string): string {
  const parsed = new URL(url);
  parsed.password = '';
  parsed.searchParams.delete('password');
  return parsed.toString();
}
