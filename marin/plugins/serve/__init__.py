"""A recorded state behind the OpenAI interface, on the loopback interface of this machine.

wire        what may be asked, and how a refusal looks
chat        messages as a prompt
engine      one thread that gives every sequence on its way one further token at a time
answers     what was generated, in the interface's shapes, with what it takes to generate it again
evidence    a saved answer, read
replay      an answer generated again, and compared
files       many prompts at once, as the files of AlpacaEval and HELM
vllm        the command with which vLLM serves a folder
app         the routes
server      the socket, what a connection may do, and the end
"""
