/** What every page stands in: theme, queries, notifications. */
import { MantineProvider } from '@mantine/core';
import { Notifications, notifications } from '@mantine/notifications';
import { MutationCache, QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { setNonce } from 'get-nonce';
import { type ReactNode, useMemo } from 'react';
import { ApiError } from './api.js';
import { useT } from './i18n.js';
import { messageOf } from './messages.js';
import { theme } from './theme.js';
import '@mantine/core/styles.css';
import '@mantine/notifications/styles.css';
import './page.css';

const nonce = document.querySelector<HTMLMetaElement>('meta[name=csp-nonce]')?.content ?? '';
setNonce(nonce);

const RETRIES = 2;

const client = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      // A refusal stays a refusal; only an outage is tried again.
      retry: (count, error) => count < RETRIES && !(error instanceof ApiError && error.status < 500),
    },
  },
  mutationCache: new MutationCache({
    onError: (error, _input, _context, mutation) => {
      if (mutation.meta?.quiet === true) return;
      // The page shows the terms.
      if (error instanceof ApiError && error.code === 'CONSENT_REQUIRED') return;
      const { title, text } = messageOf(error);
      notifications.show({ color: 'red', title, message: text });
    },
  }),
});

/** A notification whose button to close it has this name. */
const closedBy = (name: string) => ({ defaultProps: { closeButtonProps: { 'aria-label': name } } });

export function Providers({ children }: { readonly children: ReactNode }) {
  const close = useT()('shared:close');
  const named = useMemo(() => ({ ...theme, components: { Notification: closedBy(close) } }), [close]);
  return (
    <MantineProvider theme={named} defaultColorScheme="auto" getStyleNonce={() => nonce}>
      <QueryClientProvider client={client}>
        <Notifications position="bottom-right" containerWidth={420} />
        {children}
      </QueryClientProvider>
    </MantineProvider>
  );
}

export function notifyDone(message: string): void {
  notifications.show({ color: 'teal', message });
}
