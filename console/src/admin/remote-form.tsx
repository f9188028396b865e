/** Connects to a remote signer (NIP-46) and hands it over, for the sign-in and the first set-up. */
import { Alert, Anchor, Button, Stack, Text, TextInput } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { useState } from 'react';
import { Failure } from '../shared/components/states.js';
import { useT } from '../shared/i18n.js';
import { remoteSigner, type Signer } from '../shared/signers.js';

const LOOKS_RIGHT = /^bunker:\/\/\S+$/;

export function RemoteForm({ onSigner }: { readonly onSigner: (signer: Signer) => Promise<void> }) {
  const t = useT();
  const [address, setAddress] = useState('');
  const [page, setPage] = useState<string>();
  const connecting = useMutation({
    mutationFn: async () => onSigner(await remoteSigner(address.trim(), setPage)),
    meta: { quiet: true },
  });
  const isWrong = address !== '' && !LOOKS_RIGHT.test(address.trim());
  return (
    // No form of its own: it stands inside one.
    <Stack>
      <Text size="sm">{t('admin:remoteAbout')}</Text>
      <TextInput
        label={t('admin:remoteAddress')}
        placeholder={t('admin:remotePlaceholder')}
        value={address}
        onChange={(event) => setAddress(event.currentTarget.value)}
        error={isWrong ? t('admin:remoteWrong') : undefined}
        autoComplete="off"
      />
      {connecting.isPending && <Alert role="status">{t('admin:remoteWaiting')}</Alert>}
      {page !== undefined && (
        <Text size="sm">
          {t('admin:remoteAsks')}{' '}
          <Anchor href={page} target="_blank" rel="noreferrer">
            {page}
          </Anchor>
        </Text>
      )}
      {connecting.isError && <Failure error={connecting.error} />}
      <Button
        onClick={() => connecting.mutate()}
        loading={connecting.isPending}
        disabled={address === '' || isWrong}
      >
        {t('admin:connect')}
      </Button>
    </Stack>
  );
}
