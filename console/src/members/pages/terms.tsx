/** The texts of the community, and the member's consents to them. */
import { Button, Group, Stack, Text } from '@mantine/core';
import { useState } from 'react';
import { Confirm } from '../../shared/components/confirm.js';
import { Empty, Failure, Loading } from '../../shared/components/states.js';
import { date } from '../../shared/format.js';
import { useT } from '../../shared/i18n.js';
import { type Policy, useAgree, useConsents, usePolicies, useWithdraw } from '../data.js';
import { Own } from '../parts/own.js';
import { PolicyText } from '../parts/terms.js';

export default function Terms() {
  const t = useT();
  return (
    <Own title={t('home:terms')} about={t('home:termsAbout')}>
      <Policies />
    </Own>
  );
}

function Policies() {
  const t = useT();
  const policies = usePolicies();
  const status = useConsents();
  if (policies.isPending || status.isPending) return <Loading />;
  if (policies.isError) return <Failure error={policies.error} retry={() => void policies.refetch()} />;
  if (status.isError) return <Failure error={status.error} retry={() => void status.refetch()} />;
  if (policies.data.items.length === 0)
    return <Empty title={t('home:noTerms')}>{t('home:noTermsAbout')}</Empty>;
  return (
    <Stack gap="xl">
      {policies.data.items.map((policy) => (
        <Stack key={`${policy.type} ${policy.version}`} gap="xs">
          <PolicyText policy={policy} />
          <ConsentTo
            policy={policy}
            consent={status.data.required.find(({ type }) => type === policy.type)}
          />
        </Stack>
      ))}
    </Stack>
  );
}

interface ConsentToProps {
  readonly policy: Policy;
  readonly consent: { consented: boolean; consent_id?: string; consented_at?: number } | undefined;
}

function ConsentTo({ policy, consent }: ConsentToProps) {
  const t = useT();
  const [isWithdrawing, setWithdrawing] = useState(false);
  const agree = useAgree();
  const withdraw = useWithdraw();
  const { consent_id: id, consented_at: at } = consent ?? {};
  if (id === undefined || at === undefined)
    return (
      <Group>
        <Button loading={agree.isPending} onClick={() => agree.mutate([policy])}>
          {t('home:agree')}
        </Button>
      </Group>
    );
  return (
    <Group justify="space-between">
      <Text size="sm">{t('home:agreedOn', { date: date(at) })}</Text>
      <Button size="xs" variant="default" onClick={() => setWithdrawing(true)}>
        {t('home:withdraw')}
      </Button>
      <Confirm
        opened={isWithdrawing}
        title={t('home:withdrawTitle')}
        action={t('home:withdraw')}
        isBusy={withdraw.isPending}
        onConfirm={() => withdraw.mutate(id, { onSuccess: () => setWithdrawing(false) })}
        onClose={() => setWithdrawing(false)}
      >
        <Text size="sm">{t('home:withdrawAbout')}</Text>
      </Confirm>
    </Group>
  );
}
