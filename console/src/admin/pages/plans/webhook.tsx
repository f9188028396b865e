/** The secret with which a payment provider signs its calls. It is shown once, when it is made. */
import { Button, Card, Code, Group, Modal, Stack, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { api, dataOf, useAction } from '../../../shared/api.js';
import { Confirm } from '../../../shared/components/confirm.js';
import { Copy } from '../../../shared/components/copy.js';
import { Failure, Loading } from '../../../shared/components/states.js';
import { dateTime } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { notifyDone } from '../../../shared/providers.js';

const KEY = ['webhook-secret'];

export function Webhook() {
  const t = useT();
  const [asking, setAsking] = useState<'replace' | 'remove'>();
  const [secret, setSecret] = useState<string>();
  const held = useQuery({ queryKey: KEY, queryFn: () => dataOf(api.GET('/v1/admin/webhook-secret')) });
  const make = useAction(() => dataOf(api.POST('/v1/admin/webhook-secret')), {
    changes: [KEY],
    onDone: (made) => {
      setAsking(undefined);
      setSecret(made.secret);
    },
  });
  const remove = useAction(() => dataOf(api.DELETE('/v1/admin/webhook-secret')), {
    changes: [KEY],
    onDone: () => {
      setAsking(undefined);
      notifyDone(t('plans:secretRemoved'));
    },
  });
  if (held.isPending) return <Loading />;
  if (held.isError) return <Failure error={held.error} retry={() => void held.refetch()} />;
  const { is_set: isSet, created_at: since } = held.data;
  const isRemoval = asking === 'remove';
  return (
    <Card withBorder maw={640}>
      <Stack gap="sm" align="flex-start">
        <Title order={2} size="h5">
          {t(isSet ? 'plans:secretSet' : 'plans:secretNone')}
        </Title>
        <Text size="sm">
          {isSet && since !== null
            ? t('plans:secretSince', { date: dateTime(since) })
            : t('plans:secretNoneAbout')}
        </Text>
        <Group>
          <Button
            loading={make.isPending}
            onClick={() => (isSet ? setAsking('replace') : make.mutate(undefined))}
          >
            {t(isSet ? 'plans:secretReplace' : 'plans:secretMake')}
          </Button>
          {isSet && (
            <Button variant="default" onClick={() => setAsking('remove')}>
              {t('plans:secretRemove')}
            </Button>
          )}
        </Group>
      </Stack>
      <Confirm
        opened={asking !== undefined}
        title={t(isRemoval ? 'plans:secretRemoveTitle' : 'plans:secretReplaceTitle')}
        action={t(isRemoval ? 'plans:secretRemove' : 'plans:secretReplace')}
        isBusy={make.isPending || remove.isPending}
        onClose={() => setAsking(undefined)}
        onConfirm={() => (isRemoval ? remove : make).mutate(undefined)}
      >
        <Text size="sm">{t(isRemoval ? 'plans:secretRemoveAbout' : 'plans:secretReplaceAbout')}</Text>
      </Confirm>
      <Modal
        opened={secret !== undefined}
        onClose={() => setSecret(undefined)}
        title={t('plans:secretShown')}
        centered
        closeOnClickOutside={false}
        closeButtonProps={{ 'aria-label': t('shared:close') }}
      >
        <Stack>
          <Text size="sm">{t('plans:secretShownAbout')}</Text>
          <Group gap="xs" wrap="nowrap">
            <Code block flex={1} className="text">
              {secret}
            </Code>
            <Copy value={secret ?? ''} />
          </Group>
          <Button onClick={() => setSecret(undefined)}>{t('plans:secretDone')}</Button>
        </Stack>
      </Modal>
    </Card>
  );
}
