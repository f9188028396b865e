/**
 * Sign-in with a remote signer (NIP-46). The document of this page alone may connect to other relays, so the
 * pages that follow are shown in it, without another load.
 */
import { Alert, Anchor, Button, Paper, Stack, Text, TextInput } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { Failure, Loading } from '../../shared/components/states.js';
import { textOr, useFilters } from '../../shared/filters.js';
import { useT } from '../../shared/i18n.js';
import { rememberedRelays, remoteSigner } from '../../shared/signers.js';
import { Head } from '../parts/head.js';
import { useGo } from '../parts/link.js';
import { resumeRemote, signIn, signOut } from '../session.js';

const LOOKS_RIGHT = /^bunker:\/\/[0-9a-f]{64}\?\S+$/;
/** A path of these pages, never another address. */
const filters = {
  next: textOr('/', /^\/(?!\/)/),
};

export default function Remote() {
  const t = useT();
  const go = useGo();
  const [{ next }] = useFilters(filters);
  const [address, setAddress] = useState('');
  const [page, setPage] = useState<string>();
  const connecting = useMutation({
    mutationFn: async () => signIn(await remoteSigner(address.trim(), setPage)),
    onSuccess: () => go(next),
    meta: { quiet: true },
  });
  const resuming = useMutation({
    mutationFn: () => resumeRemote(setPage),
    onSuccess: () => go(next),
    onError: signOut,
    meta: { quiet: true },
  });
  const { mutate: resume } = resuming;
  useEffect(() => {
    if (rememberedRelays() !== undefined) resume();
  }, [resume]);
  if (resuming.isPending) return <Loading />;
  const isWrong = address !== '' && !LOOKS_RIGHT.test(address.trim());
  return (
    <>
      <Head title={t('home:withRemote')} about={t('home:remoteAbout')} />
      <Paper withBorder p="lg">
        <form
          onSubmit={(event) => {
            event.preventDefault();
            if (address !== '' && !isWrong) connecting.mutate();
          }}
        >
          <Stack>
            <TextInput
              label={t('home:remoteAddress')}
              placeholder="bunker://…"
              autoComplete="off"
              value={address}
              onChange={(event) => setAddress(event.currentTarget.value)}
              error={isWrong ? t('home:remoteWrong') : undefined}
            />
            {connecting.isPending && <Alert role="status">{t('home:remoteWaiting')}</Alert>}
            {page !== undefined && (
              <Text size="sm">
                {t('home:remoteAsks')}{' '}
                <Anchor href={page} target="_blank" rel="noreferrer noopener">
                  {page}
                </Anchor>
              </Text>
            )}
            {connecting.isError && <Failure error={connecting.error} />}
            <Button type="submit" loading={connecting.isPending} disabled={address === '' || isWrong}>
              {t('home:connectSigner')}
            </Button>
          </Stack>
        </form>
      </Paper>
    </>
  );
}
