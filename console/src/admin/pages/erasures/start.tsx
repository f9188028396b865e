/** Requests the erasure of a whole community: says in numbers what it deletes, and asks for its name. */
import { NumberInput, Select, Text } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { api, dataOf, useAction } from '../../../shared/api.js';
import { Confirm } from '../../../shared/components/confirm.js';
import { bytes, number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { notifyDone } from '../../../shared/providers.js';
import { ERASURES_KEY } from './data.js';

interface EraseCommunityProps {
  readonly opened: boolean;
  readonly onClose: () => void;
  readonly onStarted: (erasureId: string) => void;
}

const counted = ({ count, more }: { readonly count: number; readonly more: boolean }) =>
  `${number(count)}${more ? '+' : ''}`;

export function EraseCommunity({ opened, onClose, onStarted }: EraseCommunityProps) {
  const t = useT();
  const [slug, setSlug] = useState<string | null>(null);
  const [days, setDays] = useState<number | ''>('');
  const { data } = useQuery({
    queryKey: ['communities', 'erasable'],
    queryFn: () => dataOf(api.GET('/v1/admin/communities', { params: { query: { limit: 200 } } })),
    enabled: opened,
  });
  const others = data?.items.filter((one) => one.slug !== 'default' && one.closed_at === null) ?? [];
  const chosen = others.find((one) => one.slug === slug);
  const start = useAction(
    (community: string) =>
      dataOf(
        api.POST('/v1/admin/erasures', {
          body: { community, ...(days === '' ? {} : { grace_days: days }) },
        }),
      ),
    {
      changes: [ERASURES_KEY, ['communities']],
      onDone: ({ erasure_id }) => {
        notifyDone(t('erasures:started'));
        setSlug(null);
        onStarted(erasure_id);
      },
    },
  );
  return (
    <Confirm
      opened={opened}
      title={t('erasures:startTitle')}
      {...(chosen && { name: chosen.slug })}
      action={t('erasures:startAction')}
      isBusy={start.isPending}
      isDisabled={chosen === undefined}
      onConfirm={() => chosen && start.mutate(chosen.slug)}
      onClose={() => {
        setSlug(null);
        onClose();
      }}
    >
      {data && others.length === 0 && <Text size="sm">{t('erasures:noOthers')}</Text>}
      <Select
        label={t('erasures:community')}
        placeholder={t('erasures:choose')}
        data={others.map((one) => ({ value: one.slug, label: one.name ?? one.slug }))}
        value={slug}
        onChange={setSlug}
      />
      {chosen && (
        <>
          <Text size="sm">
            {t('erasures:numbers', {
              events: number(chosen.events),
              size: bytes(chosen.bytes),
              members: counted(chosen.members),
              topics: counted(chosen.topics),
            })}
          </Text>
          <Text size="sm" fw={600}>
            {t('erasures:afterGrace')}
          </Text>
          <NumberInput
            label={t('erasures:graceDays')}
            description={t('erasures:graceAbout')}
            min={0}
            max={365}
            allowDecimal={false}
            value={days}
            onChange={(value) => setDays(typeof value === 'number' ? value : '')}
          />
        </>
      )}
    </Confirm>
  );
}
