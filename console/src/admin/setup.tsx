/** The first set-up of a node, with the one-time code of the link that it printed. */
import { Alert, Button, Group, Radio, Stack, Stepper, Text, Textarea, TextInput, Title } from '@mantine/core';
import { useMutation, useQuery } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { ApiError, api, dataOf } from '../shared/api.js';
import { Failure, Loading } from '../shared/components/states.js';
import { currentLanguage, useT } from '../shared/i18n.js';
import { npubOf, pubkeyOf } from '../shared/keys.js';
import { adminBase } from '../shared/place.js';
import { extensionSigner, hasExtension } from '../shared/signers.js';
import { RemoteForm } from './remote-form.js';
import { codeInAddress, Entrance } from './sign-in.js';
import './texts.js';

const MODES = ['default', 'required', 'open'] as const;
const TOPICS_MAX = 20;
const code = codeInAddress('setup');

export function Setup() {
  const t = useT();
  const values = useQuery({
    queryKey: ['setup'],
    enabled: code !== '',
    queryFn: () => dataOf(api.GET('/v1/setup', { headers: { 'x-setup-code': code } })),
    staleTime: Number.POSITIVE_INFINITY,
  });
  const isDead = values.error instanceof ApiError && values.error.status === 404;
  if (code === '' || isDead)
    return (
      <Entrance title={t('admin:setupDead')} about={t('admin:setupDeadAbout')}>
        <Text size="sm">{t('admin:setupNoCode')}</Text>
      </Entrance>
    );
  return (
    <Entrance title={t('admin:setup')} about={t('admin:setupAbout')} width={640}>
      {values.isPending && <Loading />}
      {values.isError && <Failure error={values.error} retry={() => void values.refetch()} />}
      {values.isSuccess && <Steps name={values.data.name} mode={values.data.topic_mode} />}
    </Entrance>
  );
}

interface Answers {
  operator: string;
  name: string;
  picture: string;
  mode: (typeof MODES)[number];
  topics: string;
  title: string;
  content: string;
}

function Steps({ name, mode }: { readonly name: string; readonly mode: Answers['mode'] }) {
  const t = useT();
  const [step, setStep] = useState(0);
  const empty = { operator: '', picture: '', topics: '', title: '', content: '' };
  const [answers, setAnswers] = useState<Answers>({ ...empty, name, mode });
  const change = (some: Partial<Answers>) => setAnswers((now) => ({ ...now, ...some }));
  const finishing = useMutation({
    mutationFn: () => send(answers),
    onSuccess: () => setStep(4),
    meta: { quiet: true },
  });
  if (step === 4) return <Done />;
  const isLast = step === 3;
  const isReady = step > 0 || pubkeyOf(answers.operator) !== undefined;
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (isLast) finishing.mutate();
        else if (isReady) setStep(step + 1);
      }}
    >
      <Stepper active={step} onStepClick={setStep} allowNextStepsSelect={false} size="xs" mb="lg">
        <Stepper.Step label={t('admin:stepOperator')} />
        <Stepper.Step label={t('admin:stepLooks')} />
        <Stepper.Step label={t('admin:stepTopics')} />
        <Stepper.Step label={t('admin:stepTerms')} />
      </Stepper>
      <Stack>
        {[Operator, Looks, Topics, Terms].map((Step, index) =>
          index === step ? <Step key={Step.name} answers={answers} change={change} /> : undefined,
        )}
        {finishing.isError && <Failure error={finishing.error} />}
        <Group justify="space-between">
          <Button variant="default" onClick={() => setStep(step - 1)} disabled={step === 0}>
            {t('admin:back')}
          </Button>
          <Button type="submit" loading={finishing.isPending} disabled={!isReady}>
            {t(isLast ? 'admin:finish' : 'admin:next')}
          </Button>
        </Group>
      </Stack>
    </form>
  );
}

interface StepProps {
  readonly answers: Answers;
  readonly change: (some: Partial<Answers>) => void;
}

function Operator({ answers, change }: StepProps): ReactNode {
  const t = useT();
  const asking = useMutation({
    mutationFn: async () => npubOf(await extensionSigner().pubkey()),
    onSuccess: (operator) => change({ operator }),
  });
  const [isRemote, setRemote] = useState(false);
  const isWrong = answers.operator !== '' && pubkeyOf(answers.operator) === undefined;
  return (
    <>
      <Text size="sm">{t('admin:operatorAbout')}</Text>
      <TextInput
        label={t('admin:operatorKey')}
        description={t('admin:operatorKeyAbout')}
        error={isWrong ? t('admin:operatorKeyWrong') : undefined}
        value={answers.operator}
        onChange={(event) => change({ operator: event.currentTarget.value })}
        autoComplete="off"
      />
      <Group>
        {hasExtension() && (
          <Button variant="light" loading={asking.isPending} onClick={() => asking.mutate()}>
            {t('admin:useExtension')}
          </Button>
        )}
        <Button variant="light" onClick={() => setRemote(!isRemote)} aria-expanded={isRemote}>
          {t('admin:useRemote')}
        </Button>
      </Group>
      {isRemote && (
        <RemoteForm
          onSigner={async (signer) => {
            change({ operator: npubOf(await signer.pubkey()) });
            await signer.close();
            setRemote(false);
          }}
        />
      )}
    </>
  );
}

function Looks({ answers, change }: StepProps): ReactNode {
  const t = useT();
  return (
    <>
      <TextInput
        label={t('admin:relayName')}
        value={answers.name}
        onChange={(event) => change({ name: event.currentTarget.value })}
        required
      />
      <TextInput
        type="url"
        label={t('admin:relayPicture')}
        description={t('admin:relayPictureAbout')}
        placeholder="https://"
        value={answers.picture}
        onChange={(event) => change({ picture: event.currentTarget.value })}
      />
    </>
  );
}

function Topics({ answers, change }: StepProps): ReactNode {
  const t = useT();
  return (
    <>
      <Radio.Group
        label={t('admin:mode')}
        value={answers.mode}
        onChange={(mode) => change({ mode: mode as Answers['mode'] })}
      >
        <Stack gap="xs" mt="xs">
          {MODES.map((mode) => (
            <Radio
              key={mode}
              value={mode}
              label={t(`admin:modeNames.${mode}`)}
              description={t(`admin:modes.${mode}`)}
            />
          ))}
        </Stack>
      </Radio.Group>
      <Textarea
        label={t('admin:topics')}
        description={t('admin:topicsAbout')}
        autosize
        minRows={3}
        value={answers.topics}
        onChange={(event) => change({ topics: event.currentTarget.value })}
      />
    </>
  );
}

function Terms({ answers, change }: StepProps): ReactNode {
  const t = useT();
  return (
    <>
      <Text size="sm">{t('admin:termsAbout')}</Text>
      <TextInput
        label={t('admin:termsTitle')}
        value={answers.title}
        onChange={(event) => change({ title: event.currentTarget.value })}
        required={answers.content !== ''}
      />
      <Textarea
        label={t('admin:termsContent')}
        autosize
        minRows={5}
        value={answers.content}
        onChange={(event) => change({ content: event.currentTarget.value })}
        required={answers.title !== ''}
      />
    </>
  );
}

function Done(): ReactNode {
  const t = useT();
  return (
    <Alert color="teal" variant="light">
      <Stack align="flex-start">
        <Title order={2} size="h4">
          {t('admin:doneTitle')}
        </Title>
        <Text size="sm">{t('admin:doneAbout')}</Text>
        <Button component="a" href={`${adminBase}/`}>
          {t('admin:signIn')}
        </Button>
      </Stack>
    </Alert>
  );
}

function send({ operator, name, picture, mode, topics, title, content }: Answers) {
  const names = topics.split('\n').flatMap((line) => (line.trim() === '' ? [] : [line.trim()]));
  const terms = { title, content, locale: currentLanguage() };
  const body = {
    operator: operator.trim(),
    name,
    ...(picture === '' ? {} : { picture }),
    topic_mode: mode,
    topics: names.slice(0, TOPICS_MAX),
    ...(content === '' ? {} : { terms }),
  };
  return dataOf(api.POST('/v1/setup', { headers: { 'x-setup-code': code }, body }));
}
