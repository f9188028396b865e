/** Sign-in by an extension (NIP-07); a remote signer (NIP-46) has a page of its own. */
import { Button, Divider, Modal, Stack, Text } from '@mantine/core';
import { IconKey, IconPlugConnected } from '@tabler/icons-react';
import { useMutation } from '@tanstack/react-query';
import { createContext, type ReactNode, useContext, useState } from 'react';
import { Failure } from '../../shared/components/states.js';
import { useT } from '../../shared/i18n.js';
import { prefix } from '../../shared/place.js';
import { extensionSigner, hasExtension } from '../../shared/signers.js';
import { signIn } from '../session.js';

const Opening = createContext<() => void>(() => undefined);

/** Opens the dialog. */
export const useSignIn = (): (() => void) => useContext(Opening);

export function SignInProvider({ children }: { readonly children: ReactNode }) {
  const t = useT();
  const [isOpen, setOpen] = useState(false);
  return (
    <Opening.Provider value={() => setOpen(true)}>
      {children}
      <Modal
        opened={isOpen}
        onClose={() => setOpen(false)}
        title={t('home:signIn')}
        centered
        closeButtonProps={{ 'aria-label': t('shared:close') }}
      >
        <Ways onDone={() => setOpen(false)} />
      </Modal>
    </Opening.Provider>
  );
}

function Ways({ onDone }: { readonly onDone: () => void }) {
  const t = useT();
  const entering = useMutation({
    mutationFn: () => signIn(extensionSigner()),
    onSuccess: onDone,
    meta: { quiet: true },
  });
  const here = location.pathname.slice(prefix.length) + location.search;
  return (
    <Stack>
      <Text size="sm">{t('home:signInAbout')}</Text>
      {entering.isError && <Failure error={entering.error} />}
      <Button
        leftSection={<IconKey size={16} />}
        disabled={!hasExtension()}
        loading={entering.isPending}
        onClick={() => entering.mutate()}
      >
        {t('home:withExtension')}
      </Button>
      {!hasExtension() && (
        <Text size="sm" c="dimmed">
          {t('home:noExtension')}
        </Text>
      )}
      <Divider label={t('home:or')} />
      <Button
        variant="default"
        component="a"
        href={`${prefix}/remote?next=${encodeURIComponent(here || '/')}`}
        leftSection={<IconPlugConnected size={16} />}
      >
        {t('home:withRemote')}
      </Button>
    </Stack>
  );
}

/** In place of what only members have. */
export function SignInFirst({ children }: { readonly children?: ReactNode }) {
  const t = useT();
  const open = useSignIn();
  return (
    <Stack align="flex-start" gap="sm">
      <Text size="sm">{children ?? t('home:signInFirst')}</Text>
      <Button onClick={open} leftSection={<IconKey size={16} />}>
        {t('home:signIn')}
      </Button>
    </Stack>
  );
}
