/** The texts that members agree to: shown in the reader's language, each with the consent to it. */
import { Alert, Badge, Button, Group, Modal, Paper, ScrollArea, Stack, Text, Title } from '@mantine/core';
import { IconFileText } from '@tabler/icons-react';
import { Failure, Loading } from '../../shared/components/states.js';
import { date } from '../../shared/format.js';
import { useT } from '../../shared/i18n.js';
import { type Policy, useAgree, useConsents, usePolicies } from '../data.js';

export function PolicyText({ policy }: { readonly policy: Policy }) {
  const t = useT();
  return (
    <Paper withBorder p="md">
      <Group justify="space-between" mb="xs">
        <Title order={2} size="h4">
          {policy.title}
        </Title>
        <Badge variant="default">{t('home:version', { version: policy.version })}</Badge>
      </Group>
      <ScrollArea.Autosize mah={320} type="auto" viewportProps={{ tabIndex: 0 }}>
        <Text size="sm" className="text">
          {policy.content}
        </Text>
      </ScrollArea.Autosize>
      <Text size="xs" c="dimmed" mt="xs">
        {t('home:publishedOn', { date: date(policy.current_at ?? policy.published_at) })}
      </Text>
    </Paper>
  );
}

interface TermsDialogProps {
  readonly opened: boolean;
  readonly onClose: () => void;
  readonly onAgreed: () => void;
}

/** Shown when the node refuses something without consent. */
export function TermsDialog({ opened, onClose, onAgreed }: TermsDialogProps) {
  const t = useT();
  return (
    <Modal
      opened={opened}
      onClose={onClose}
      size="lg"
      title={t('home:termsFirst')}
      closeButtonProps={{ 'aria-label': t('shared:close') }}
    >
      <Agreeing
        onDone={() => {
          onClose();
          onAgreed();
        }}
      />
    </Modal>
  );
}

/** The current texts without consent, and one button that agrees to all of them. */
export function Agreeing({ onDone }: { readonly onDone?: () => void }) {
  const t = useT();
  const policies = usePolicies();
  const status = useConsents();
  const agree = useAgree(onDone);
  if (policies.isPending || status.isPending) return <Loading />;
  if (policies.isError) return <Failure error={policies.error} retry={() => void policies.refetch()} />;
  if (status.isError) return <Failure error={status.error} retry={() => void status.refetch()} />;
  const agreed = new Set(status.data.required.filter(({ consented }) => consented).map(({ type }) => type));
  const missing = policies.data.items.filter(({ type }) => !agreed.has(type));
  if (missing.length === 0) return <Alert color="teal">{t('home:agreedToAll')}</Alert>;
  return (
    <Stack>
      {missing.map((policy) => (
        <PolicyText key={`${policy.type} ${policy.version}`} policy={policy} />
      ))}
      <Button
        leftSection={<IconFileText size={16} />}
        loading={agree.isPending}
        onClick={() => agree.mutate(missing)}
      >
        {t('home:agree')}
      </Button>
    </Stack>
  );
}
