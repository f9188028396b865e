/** The tables of sessions, declared (I12): sessions of operators in a browser, links, and revoked tokens. */
import { MINE } from '../erasure/conditions.sql.js';
import { declareTable, OF_PUBKEY } from '../postgres/table.js';

export const operatorSessionsTable = declareTable('operator_sessions', {
  row: 'A session of an operator in a browser, with the hash of its token. Not used with Redis.',
  people: { pubkey: { index: 'operator_sessions_pkey' } },
  files: {
    sessions: {
      about: 'When you signed in with a browser as an operator, and when that session expires.',
      names: ['pubkey', 'token_hash'],
      columns: 'created_at, expires_at',
      where: OF_PUBKEY,
      order: 'created_at, token_hash',
    },
  },
  erased: { store: 'sessions', by: 'sessions', traces: [MINE] },
});

const OF_SESSION = 'Belongs to the session of the same token, which is in sessions.jsonl.';

export const csrfTokensTable = declareTable('csrf_tokens', {
  row: 'The token of a session against forged requests (CSRF). Not used with Redis.',
  people: { pubkey: { index: 'csrf_tokens_pkey' } },
  inNoFile: { pubkey: OF_SESSION, token_hash: OF_SESSION, csrf_hash: OF_SESSION },
  erased: { store: 'sessions', by: 'sessions' },
});

export const signInLinksTable = declareTable('sign_in_links', {
  row: 'A one-time code that signs a key in with a browser, as a hash.',
  people: { pubkey: { index: 'sign_in_links_pkey' } },
  files: {
    'sign-in-links': {
      about: 'That a one-time code was made to sign you in with a browser, and when it expires.',
      names: ['pubkey'],
      columns: 'created_at, expires_at',
      where: OF_PUBKEY,
    },
  },
  inNoFile: { code_hash: 'The hash of a random code.' },
  erased: { store: 'sign_in_links', member: [`${MINE} AND t.created_at <= :ms`] },
});

export const revokedTokensTable = declareTable('revoked_tokens', {
  row: 'A token that was revoked before it expired.',
  people: { pubkey: { index: 'revoked_tokens_pubkey' } },
  files: {
    'revoked-tokens': {
      about: 'Tokens of yours that were revoked.',
      names: ['pubkey'],
      columns: 'token_id, expires_at',
      where: OF_PUBKEY,
    },
  },
  erased: { store: 'revoked_tokens', member: [`${MINE} AND t.expires_at <= :ms`] },
});
