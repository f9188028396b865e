/** Who is signed in. A session is a cookie that scripts cannot read; its CSRF token is kept in memory. */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { createContext, type ReactNode, useContext } from 'react';
import { ApiError, api, credentials, dataOf } from '../shared/api.js';
import { Failure, Loading } from '../shared/components/states.js';
import { prefix } from '../shared/place.js';
import type { Signer } from '../shared/signers.js';
import { mayAct, type Role } from './page.js';
import { SignIn } from './sign-in.js';

export interface Session {
  readonly pubkey: string;
  readonly role: Role;
  readonly csrf_token: string;
  readonly expires_at: number;
}

const Current = createContext<Session | undefined>(undefined);
const KEY = ['session'];

/** The session of this page. Below `SessionGate` there always is one. */
export function useSession(): Session {
  const session = useContext(Current);
  if (session === undefined) throw new Error('there is no session here');
  return session;
}

/** Whether the signed-in person may do what needs at least this role. */
export const useMay = (least: Role): boolean => mayAct(useSession().role, least);

function isSignedOut(error: unknown): boolean {
  return error instanceof ApiError && (error.status === 401 || error.status === 403 || error.status === 404);
}

/** Shows the pages to those who are signed in, and the sign-in to everybody else. */
export function SessionGate({ children }: { readonly children: ReactNode }) {
  const client = useQueryClient();
  const query = useQuery({
    queryKey: KEY,
    queryFn: async () => {
      try {
        return (await dataOf(api.GET('/v1/admin/session'))) as Session;
      } catch (error) {
        if (isSignedOut(error)) return null;
        throw error;
      }
    },
    staleTime: 60_000,
  });
  if (query.isPending) return <Loading />;
  if (query.isError) return <Failure error={query.error} retry={() => void query.refetch()} />;
  credentials.csrf = query.data?.csrf_token;
  const enter = (session: Session) => {
    credentials.csrf = session.csrf_token;
    client.setQueryData(KEY, session);
  };
  if (query.data === null) return <SignIn onDone={enter} />;
  return <Current.Provider value={query.data}>{children}</Current.Provider>;
}

/** Starts a session with a signed request (NIP-98). */
export async function signInWith(signer: Signer): Promise<Session> {
  const { relay } = await dataOf(api.POST('/v1/auth/challenge'));
  // The address under which the node knows itself; the one in the browser may be another name of it.
  const base = relay.replace(/^ws/, 'http').replace(/\/$/, '');
  const event = await signer.sign({
    kind: 27_235,
    created_at: Math.floor(Date.now() / 1_000),
    content: '',
    tags: [
      ['u', `${base}/v1/admin/session`],
      ['method', 'POST'],
    ],
  });
  const bytes = new TextEncoder().encode(JSON.stringify(event));
  const signed = btoa(String.fromCharCode(...bytes));
  const headers = { authorization: `Nostr ${signed}` };
  return (await dataOf(api.POST('/v1/admin/session', { headers }))) as Session;
}

/** Starts a session with the code of `minato operators link`. */
export async function signInByCode(code: string): Promise<Session> {
  return (await dataOf(api.POST('/v1/sessions/link', { body: { code } }))) as Session;
}

export async function signOut(): Promise<void> {
  await api.DELETE('/v1/admin/session');
  location.assign(`${prefix}/admin/`);
}
