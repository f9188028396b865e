/** One consumer: its state, its lag over time, what operators of the node do to it, and its dead letters. */
import { Alert, Anchor, Button, Group, Paper, Progress, SimpleGrid, Stack, Text } from '@mantine/core';
import {
  IconAlertTriangle,
  IconArrowBackUp,
  IconPlayerPause,
  IconPlayerPlay,
  IconRefresh,
} from '@tabler/icons-react';
import { Link, useParams } from '@tanstack/react-router';
import { useState } from 'react';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty, Failure, Loading } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { duration, number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { useNodeOperator } from '../jobs/list.js';
import { OnlyNode } from '../jobs/only-node.js';
import { State } from './consumers.js';
import { LagChart } from './lag-chart.js';
import { Letters } from './letters.js';
import { type Consumer, useConsumers } from './list.js';
import { type Step, StepDialogs, useSteps } from './steps.js';
import './texts.js';

export default function ConsumerPage() {
  const t = useT();
  const { name = '' } = useParams({ strict: false }) as { name?: string };
  const query = useConsumers();
  const consumer = query.data?.items.find((each) => each.name === name);
  if (query.isPending) return <Loading />;
  if (query.data === undefined) return <Failure error={query.error} retry={() => void query.refetch()} />;
  const back = (
    <Anchor component={Link} to="/consumers" size="sm">
      {t('consumers:back')}
    </Anchor>
  );
  if (consumer === undefined)
    return (
      <Empty title={t('consumers:notFound')} action={back}>
        {t('consumers:notFoundAbout')}
      </Empty>
    );
  return (
    <>
      {back}
      <One consumer={consumer} />
    </>
  );
}

function One({ consumer }: { readonly consumer: Consumer }) {
  const t = useT();
  const isOfNode = useNodeOperator();
  const [asked, setAsked] = useState<Step>();
  const steps = useSteps(consumer.name);
  const { rebuild, error } = consumer;
  return (
    <>
      <PageHead title={consumer.name} about={<State of={consumer} />}>
        {isOfNode && (
          <>
            {consumer.paused_at === null ? (
              <Button
                variant="default"
                leftSection={<IconPlayerPause size={16} />}
                onClick={() => setAsked('pause')}
              >
                {t('consumers:pause')}
              </Button>
            ) : (
              <Button
                leftSection={<IconPlayerPlay size={16} />}
                loading={steps.isPending}
                onClick={() => steps.mutate({ step: 'resume' })}
              >
                {t('consumers:resume')}
              </Button>
            )}
            <Button
              variant="default"
              leftSection={<IconArrowBackUp size={16} />}
              onClick={() => setAsked('replay')}
            >
              {t('consumers:replay')}
            </Button>
            <Button
              variant="default"
              leftSection={<IconRefresh size={16} />}
              onClick={() => setAsked('rebuild')}
            >
              {t('consumers:rebuild')}
            </Button>
          </>
        )}
      </PageHead>
      <Stack gap="xl">
        {isOfNode === false && <OnlyNode>{t('consumers:onlyNode')}</OnlyNode>}
        {steps.error !== null && <Failure error={steps.error} />}
        {error !== null && (
          <Alert
            color="red"
            variant="light"
            icon={<IconAlertTriangle size={20} />}
            title={t('consumers:error')}
          >
            <Text size="sm" className="text mono">
              {error}
            </Text>
          </Alert>
        )}
        {rebuild !== null && <Rebuilding of={rebuild} />}
        <SimpleGrid cols={{ base: 2, sm: 3, lg: 6 }} spacing="sm">
          <Figure label={t('consumers:lag')}>{duration(consumer.lag_seconds * 1_000)}</Figure>
          <Figure label={t('consumers:lagRows')}>{number(consumer.lag_rows)}</Figure>
          <Figure label={t('consumers:speed')}>{number(consumer.rows_per_second, 1)}</Figure>
          <Figure label={t('consumers:applied')}>{number(consumer.applied)}</Figure>
          <Figure label={t('consumers:generation')}>{number(consumer.generation)}</Figure>
          <Figure label={t('consumers:since')}>
            <When at={consumer.updated_at} />
          </Figure>
        </SimpleGrid>
        <Text size="sm" c="dimmed" className="number">
          {`${t('consumers:position')}: ${t('consumers:positionOf', {
            at: number(consumer.last_seq),
            head: number(consumer.head_seq),
          })}`}
        </Text>
        <LagChart name={consumer.name} />
        <Letters consumer={consumer} isOfNode={isOfNode === true} />
      </Stack>
      <StepDialogs consumer={consumer} asked={asked} steps={steps} onClose={() => setAsked(undefined)} />
    </>
  );
}

function Figure({ label, children }: { readonly label: string; readonly children: React.ReactNode }) {
  return (
    <Paper withBorder p="md">
      <Text size="xs" c="dimmed">
        {label}
      </Text>
      <Text size="lg" fw={650} className="number">
        {children}
      </Text>
    </Paper>
  );
}

function Rebuilding({ of }: { readonly of: NonNullable<Consumer['rebuild']> }) {
  const t = useT();
  const phase = t(`consumers:phase.${of.phase}`);
  return (
    <Paper withBorder p="md">
      <Group justify="space-between" mb="xs">
        <Text fw={600}>{phase}</Text>
        <Text className="number">{`${number(of.percent)} %`}</Text>
      </Group>
      <Progress value={of.percent} aria-label={phase} />
      <Text size="sm" c="dimmed" mt="xs" className="number">
        {t('consumers:progress', { scanned: number(of.scanned), expected: number(of.expected) })}
      </Text>
      <Text size="sm" c="dimmed" className="text">
        {t('consumers:reason', { reason: of.reason })}
      </Text>
    </Paper>
  );
}
